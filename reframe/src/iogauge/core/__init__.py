"""Words, units, and how data from outside is read.

- deadline: ask storage in a child process, and wait no longer than a limit
- measurement: what any tool measured: metrics, quantities, outputs
- paths: where the project and its state lie
- processes: whether a process still lives, and which ones outlived their job
- text: text that is safe to print, and digests
- units: sizes, rates and durations, from text and back
- untrusted: files of bounded size, strict JSON, values of the declared type
- words: names that sites, checks and records share
- yamlfile: YAML, read safely and within bounds
"""
