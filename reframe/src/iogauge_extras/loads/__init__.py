"""Special loads: across a failure, for hours, reads beside writes, random reads over clients and servers.

- blocks: blocks whose content says whose they are, and what a block is that was read
- client_stream: what a client writes, creates and checks while a part of the storage fails
- failover_check: a scenario: I/O across a failure
- endurance_check: a scenario: bandwidth over hours
- mixed_check: a scenario: reads and writes at once
- random_read_check: scenarios: random reads over clients and servers, with and without checksums
- bandwidth_series: the bytes of an execution, second by second
"""
