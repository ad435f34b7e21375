"""The benchmark programs: options become arguments, output becomes values.

- arguments: options of a tool, each with its word on the command line
- darshan: words that put Darshan under the ranks of a tool
- fio: job files of fio, and its JSON
- ior: command lines of IOR, and its JSON
- mdtest: command lines of mdtest, its tables and the details of its ranks
- mpi: MPI-IO hints in the words of the MPI library, and reported bindings
- parsing: functions that all parsers share: numbers that must be there and positive
"""
