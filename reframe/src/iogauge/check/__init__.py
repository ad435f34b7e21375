"""ReFrame base classes: what a thin check in checks/ builds on."""

__all__ = [
    "AggregatorsCheck",
    "ChecksumCheck",
    "FioCheck",
    "FioMetadataCheck",
    "FioRandomReadCheck",
    "IorCheck",
    "MdtestCheck",
    "PinnedFilesCheck",
    "RandomReadCheck",
    "SharedFileCheck",
    "StorageCheck",
]
