"""What the layers below the file system carry.

- ceilings_command: site ceilings
- table: declared and reached figures of each layer
"""
