"""Words and units, and strict reading of outside data.

- deadline: call storage in a child process, with a time limit
- files: write files whole or not at all
- measurement: metrics, quantities, outputs, in one form for every tool
- paths: paths of the project and of its state
- processes: whether a process still lives, and which ones outlived their job
- text: text that is safe to print, and digests
- units: sizes, rates and durations, from text and back
- untrusted: files of bounded size, strict JSON, values of the declared type
- words: names that sites, checks and records share
- yamlfile: YAML, read safely and within bounds
"""
