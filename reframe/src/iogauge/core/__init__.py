"""Words and units, and strict reading of outside data.

- commands: run a program to its end
- form: objects of JSON whose older and newer forms are read too
- groups: items by what they have in common
- measurement: metrics, quantities, outputs, in one form for every tool
- paths: paths of the project and of its state; files written whole or not at all
- processes: whether a process still lives, which ones outlived their job, and calls to storage with a time limit
- registry: what a site can do without, found by its entry points
- text: text that is safe to print, and digests
- units: sizes, rates and durations, from text and back
- untrusted: files of bounded size, strict JSON, values of the declared type
- versions: the oldest versions of the tools that will do
- vocabulary: names that sites, checks and records share
- yamlfile: YAML, read safely and within bounds
"""
