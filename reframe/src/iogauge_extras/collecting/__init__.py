"""The first month of a partition: valid runs are collected until references decide.

- collecting_command: site collecting
"""
