"""Where an alarm goes, against real commands and a real HTTP server on this machine."""

import contextlib
import json
import os
from datetime import datetime, timezone

import pytest

from e2e import warm
from iogauge.judge.verdict import Verdict
from iogauge.report.endings import Ending, Word
from iogauge.site.extras import Receivers
from iogauge_extras.page import receivers
from iogauge_extras.page.charts import Curve, Run
from iogauge_extras.page.receivers import SendError
from iogauge_extras.page.trouble import Alarm, Trouble
from support.shell import script
from support.web import ENDLESS, served

TOKEN, DOOR = "token-that-nobody-may-see", "door-that-nobody-may-see"


def message(case="IorPosix"):
    point = Run(
        datetime(2026, 1, 5, tzinfo=timezone.utc), "s1", 60.0, Verdict.FAIL, "a"
    )
    curve = Curve(title=case, unit="MiB/s", points=[point])
    trouble = Trouble(
        kind="FAIL",
        where="site:scratch",
        case=case,
        metric="write_bw",
        measured="60",
        curve=curve,
    )
    return Alarm(
        sessions=("s1",),
        systems=("site",),
        ending=Ending(Word.FAILED, "1 failed (FAIL)"),
        troubles=(trouble,),
        link="https://ci.invalid/1",
    )


@pytest.fixture
def serve():
    """Starts servers that answer each request with the next of their answers, and with the last one again and again."""
    with contextlib.ExitStack() as running:

        def make(*answers):
            given = answers or ((200, {}, "ok"),)
            return running.enter_context(
                served(lambda n, _: given[min(n, len(given)) - 1])
            )

        yield make


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(receivers, "PAUSES", (0.0, 0.01, 0.01))
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def to_webhook(server):
    return {
        "IOGAUGE_WEBHOOK_URL": f"{server.url}/{DOOR}",
        "IOGAUGE_WEBHOOK_TOKEN": TOKEN,
    }


def failure(environment):
    ((_, receiver),) = receivers.receivers(environment).items()
    with pytest.raises(SendError) as error:
        receiver(message())
    text = str(error.value)
    assert TOKEN not in text and DOOR not in text
    return text


# The webhook.


def test_a_webhook_gets_text_and_values(serve):
    server = serve()
    receivers.receivers(to_webhook(server))["webhook"](message())
    ((path, headers, body),) = server.got
    assert path == f"/{DOOR}"
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["content-type"] == "application/json"
    told = json.loads(body)
    assert told["text"].startswith(
        "```\niogauge site: FAILED: FAIL site:scratch IorPosix write_bw: 60\nFAILED: 1 failed (FAIL)\n\nFAIL site:scratch"
    )
    assert told["text"].endswith("```\nhttps://ci.invalid/1")
    assert told["troubles"][0]["runs"] == [60.0]


def test_text_from_outside_can_neither_mention_nor_leave_its_block():
    text = receivers.markup(message("IorPosix <!channel> ```\n/close @all"))
    assert text.count("```") == 2 and "<" not in text


def test_a_long_alarm_is_cut_and_keeps_its_link():
    text = receivers.plain(message("x" * 50_000))
    assert len(text) < receivers.LONGEST + 200
    assert "cut here" in text and text.endswith("https://ci.invalid/1")


@pytest.mark.parametrize(
    ("codes", "asked", "said"),
    [
        ([500, 429, 200], 3, ""),
        ([500], 3, "127.0.0.1: status 500, 3 attempts"),
        ([403], 1, "127.0.0.1: status 403"),
    ],
)
def test_who_is_broken_is_asked_again_but_not_for_ever(serve, codes, asked, said):
    server = serve(*((code, {}, f"{TOKEN} {DOOR}") for code in codes))
    if said:
        assert failure(to_webhook(server)) == said
    else:
        receivers.receivers(to_webhook(server))["webhook"](message())
    assert len(server.got) == asked


@pytest.mark.parametrize("code", [302, 307])
def test_a_redirection_takes_no_token_elsewhere(serve, code):
    other = serve()
    server = serve((code, {"Location": f"{other.url}/{DOOR}"}, ""))
    assert "redirected, which is not followed" in failure(to_webhook(server))
    assert other.got == []


# The command.


def to_command(command, environment):
    ((_, receiver),) = receivers.receivers(
        environment, [Receivers(command=command)]
    ).items()
    return receiver


def test_a_command_gets_the_text_without_a_shell_and_without_secrets(tmp_path):
    file, program = tmp_path / "got", tmp_path / "mail it"
    script(program, f'#!/bin/sh\necho "$@" >"{file}"; cat >>"{file}"; env >>"{file}"\n')
    environment = dict(os.environ) | {"IOGAUGE_GITLAB_TOKEN": TOKEN}
    to_command(f"'{program}' -s '$(id);`id`'", environment)(message())
    got = file.read_text()
    assert got.startswith("-s $(id);`id`\niogauge site: FAILED")
    assert "https://ci.invalid/1" in got and TOKEN not in got


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/nowhere/mail", "/nowhere/mail: No such file or directory"),
        ("sh -c 'echo no relay >&2; exit 3'", "sh: exit status 3: no relay"),
    ],
)
def test_a_command_that_fails(command, said):
    with pytest.raises(SendError, match=f"^{said}$"):
        to_command(command, {"PATH": os.environ["PATH"]})(message())


# The note.


def in_gitlab(server, **more):
    return {
        "IOGAUGE_GITLAB_TOKEN": TOKEN,
        "CI_API_V4_URL": f"{server.url}/api/v4",
        "CI_PROJECT_ID": "7",
        "CI_MERGE_REQUEST_IID": "12",
    } | more


def test_a_note_is_a_block_of_code_on_the_merge_request(serve):
    server = serve((201, {}, "{}"))
    receivers.receivers(in_gitlab(server))["note"](message())
    ((path, headers, body),) = server.got
    assert path == "/api/v4/projects/7/merge_requests/12/notes"
    assert json.loads(body)["body"].startswith("```\niogauge site: FAILED")
    assert headers["private-token"] == TOKEN


def test_a_merge_request_is_a_number(serve):
    server = serve()
    assert "expected its number" in failure(
        in_gitlab(server, CI_MERGE_REQUEST_IID="1/../2")
    )
    assert server.got == []


# The command line.


def run_alarm(home, *words, **extra):
    """Run the command as users do, without the start of an interpreter; return its status and what it printed."""
    environment = {**os.environ, "IOGAUGE_HOME": str(home), **extra}
    started = warm.server().start(["iogauge", "alarm", *words], home, environment)
    out, _ = started.communicate(timeout=600)
    return started.wait(), out


@pytest.mark.slow
def test_an_alarm_that_reaches_nobody_is_still_an_alarm(tmp_path, serve):
    server = serve((403, {}, ""))
    expected = ("--expect", "site:scratch")
    assert run_alarm(tmp_path, *expected)[0] == 1
    rc, out = run_alarm(tmp_path, "--send", *expected, **to_webhook(server))
    assert rc == 3, out
    assert "ERROR site:scratch: nothing was measured here" in out
    assert "ALARM NOT SENT: webhook: 127.0.0.1: status 403" in out
    assert TOKEN not in out and DOOR not in out
    rc, out = run_alarm(tmp_path, "--send", *expected, **to_webhook(serve()))
    assert (rc, "alarm sent: webhook" in out) == (1, True)
    assert run_alarm(tmp_path)[0] == 2
    # Without a receiver too; only a message that asks for one is refused.
    rc, out = run_alarm(tmp_path, "--send", *expected)
    assert (rc, "nobody would be told" in out) == (3, True)
    assert "ERROR site:scratch: nothing was measured here" in out
    assert run_alarm(tmp_path, "--test", *expected)[0] == 2


# What a site declares.


def test_a_site_names_a_command_a_mail_and_a_file_with_an_address(tmp_path, serve):
    server, got = serve(), tmp_path / "got"
    for name in ("sendmail", "tell"):
        script(tmp_path / name, f'#!/bin/sh\n(echo "$0 $@"; cat) >>"{got}"\n')
    (tmp_path / "chat").write_text(f"{server.url}/{DOOR}\n")
    declared = Receivers(
        mail=("a@example.org", "b@example.org"),
        command=f"{tmp_path}/tell 'us all'",
        webhook_files=(str(tmp_path / "chat"),),
    )
    found = receivers.receivers(
        {"PATH": f"{tmp_path}:{os.environ['PATH']}"}, [declared]
    )
    for receiver in found.values():
        receiver(message())
    text = got.read_text()
    assert (
        "sendmail -i -t\nTo: a@example.org, b@example.org\nSubject: iogauge site: FAILED"
        in text
    )
    assert "tell us all\niogauge site: FAILED" in text
    assert [path for path, *_ in server.got] == [f"/{DOOR}"]
    assert DOOR not in " ".join(found)


def test_an_answer_that_does_not_end_is_not_waited_for(serve):
    server = serve((200, {}, ENDLESS))
    receivers.receivers(to_webhook(server))["webhook"](message())
    assert len(server.got) == 1
