"""The benchmark programs: options become arguments, output becomes values.

- darshan: words that put Darshan under a tool, and its log
- elbencho: command lines of elbencho, and its JSON lines
- fio: job files of fio, and its JSON
- io500: ini files of IO500, and its scores
- ior: command lines of IOR, and its JSON
- iperf3: streams between nodes, and their reports
- mdtest: command lines of mdtest and md-workbench, their tables and latencies
- mpi: MPI-IO hints in the words of the MPI library, and reported bindings
- parsing: functions that all parsers share: numbers that must be there and positive
"""
