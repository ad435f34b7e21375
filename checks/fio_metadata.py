"""fio's metadata engines: filecreate, filestat, filedelete."""

import reframe as rfm

from iogauge.cases import FioMetadataCheck


@rfm.simple_test
class FioMetadata(FioMetadataCheck):
    descr = "Create, stat and remove empty files"
    tags = {"fio", "quick", "daily", "weekly", "acceptance"}
