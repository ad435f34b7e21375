"""Other benchmark programs, and what libraries over MPI-IO make of one file.

- hints: MPI-IO hints in the words of the MPI library at hand
- io500: ini files of IO500, and its scores
- io500_check: scenarios that run IO500
- shared_check: scenarios in which all tasks of IOR write one file together
- wrf: reports of WRF-IO
- wrf_check: the scenario that runs WRF-IO
"""
