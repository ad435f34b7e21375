"""Sequential writes and reads with elbencho, where it is installed: a second tool for one pattern."""

from reframe.core.builtins import parameter

from iogauge.check import ElbenchoCheck, sweep, words


@sweep.simple_test_if(sweep.environments(words.ELBENCHO))
class Elbencho(ElbenchoCheck):
    descr = "Bandwidth of write and read with elbencho, a file for each process, O_DIRECT"
    valid_systems = [f"+{words.TARGET} +{words.O_DIRECT}"]
    tags = {"elbencho", "daily", "weekly", "acceptance"}

    block = parameter(["1MiB", "4MiB"], loggable=True)
