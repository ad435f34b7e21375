"""Where an alarm goes: a mail, a command, a webhook, a note on a merge request of GitLab.

Addresses and tokens come from the environment, never from a command line, and are in no message of ours. Text
from outside goes into a block of code, in which it can neither mention anybody nor give GitLab an order.
"""

import json
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib import parse, request
from urllib.error import HTTPError

from iogauge.core import commands
from iogauge.core.text import visible
from iogauge.site.extras import Receivers
from iogauge_extras.page.trouble import Alarm

#: Variables whose values are secrets.
SECRETS: Final = (
    "IOGAUGE_WEBHOOK_URL",
    "IOGAUGE_WEBHOOK_TOKEN",
    "IOGAUGE_GITLAB_TOKEN",
)

#: Seconds for an answer, and before each attempt.
TIMEOUT: Final = 15.0
PAUSES: Final = (0.0, 2.0, 8.0)

#: Seconds for a command.
COMMAND_TIMEOUT: Final = 120.0

#: Characters of a message; Mattermost takes 16383.
LONGEST: Final = 12_000


class SendError(Exception):
    """A receiver did not get the alarm; the message names it and the reason, and holds no secret."""


Receiver = Callable[[Alarm], None]


def _body(alarm: Alarm) -> str:
    """Return the text of an alarm, cut if it is too long for a chat."""
    if len(alarm.text) <= LONGEST:
        return alarm.text
    whole = alarm.text[:LONGEST].rpartition("\n")[0] or alarm.text[:LONGEST]
    return f"{whole}\n\n[cut here; the rest stands in the report]"


def plain(alarm: Alarm) -> str:
    """Return plain text with the link."""
    return "\n\n".join(filter(None, [_body(alarm), alarm.link]))


def markup(alarm: Alarm) -> str:
    """Return the same for a chat: everything from outside stands in a block of code."""
    # Angle brackets are orders to Slack (<!channel>), accents end the block.
    body = _body(alarm).translate({ord("`"): "'", ord("<"): "‹", ord(">"): "›"})
    return "\n".join(filter(None, [f"```\n{body}\n```", alarm.link]))


def to_json(alarm: Alarm) -> dict[str, object]:
    """Return the body for a webhook: ``text`` is what Slack and Mattermost show, the rest is for programs."""
    return {
        "text": markup(alarm),
        "failed": alarm.failed,
        "word": alarm.ending.word.value,
        "summary": alarm.ending.sentence,
        "systems": list(alarm.systems),
        "sessions": list(alarm.sessions),
        "troubles": [trouble.to_json() for trouble in alarm.troubles],
        "link": alarm.link,
    }


def receivers(
    environment: Mapping[str, str], declared: Sequence[Receivers] = ()
) -> dict[str, Receiver]:
    """Return the receivers that an environment and sites ask for, by name.

    Raises ValueError for a command that is none and a note that is asked for by halves, and OSError for a file that cannot be read.
    """
    found: dict[str, Receiver] = {}
    bare = {name: value for name, value in environment.items() if name not in SECRETS}
    for site in declared:
        if site.mail:
            found[f"mail to {', '.join(site.mail)}"] = partial(
                send_mail, site.mail, bare
            )
        if site.command:
            words = shlex.split(site.command)
            found[site.command] = partial(run_command, words, bare)
        for file in site.webhook_files:
            url = Path(file).read_text(encoding="utf-8").strip()
            found[file] = partial(post_webhook, url, "")
    url = environment.get("IOGAUGE_WEBHOOK_URL", "")
    if url:
        token = environment.get("IOGAUGE_WEBHOOK_TOKEN", "")
        found["webhook"] = partial(post_webhook, url, token)
    token = environment.get("IOGAUGE_GITLAB_TOKEN", "")
    number = environment.get("IOGAUGE_NOTE_ON", "")
    number = number or environment.get("CI_MERGE_REQUEST_IID", "")
    if token and number:
        api = environment.get("CI_API_V4_URL", "")
        project = environment.get("CI_PROJECT_ID", "")
        if not api or not project:
            raise ValueError(
                "a note needs CI_API_V4_URL and CI_PROJECT_ID, which GitLab sets in its jobs"
            )
        place = f"{api.rstrip('/')}/projects/{parse.quote(project, safe='')}"
        found["note"] = partial(post_note, place, number, token)
    return found


def send_mail(to: Sequence[str], environment: Mapping[str, str], alarm: Alarm) -> None:
    """Give the alarm to the host's sendmail; raises :class:`SendError`."""
    path = (
        f"{environment.get('PATH', '')}:/usr/sbin:/usr/lib"  # where users do not look
    )
    program = shutil.which("sendmail", path=path) or "sendmail"
    head = (
        f"To: {', '.join(to)}\nSubject: {alarm.title[:200]}\nMIME-Version: 1.0\n"
        "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n"
    )
    run_command([program, "-i", "-t"], environment, alarm, head)


def run_command(
    words: Sequence[str],
    environment: Mapping[str, str],
    alarm: Alarm,
    head: str = "",
) -> None:
    """Give the text to a command on its standard input, without a shell; raises :class:`SendError`."""
    try:
        given = f"{head}{plain(alarm)}\n"
        done = commands.run(
            *words, seconds=COMMAND_TIMEOUT, environment=environment, given=given
        )
    except TimeoutError:
        raise SendError(
            f"{words[0]}: not done after {COMMAND_TIMEOUT:g} s, ended"
        ) from None
    except OSError as error:
        raise SendError(f"{words[0]}: {error.strerror or error}") from None
    if done.returncode != 0:
        printed = (done.stderr.strip() or done.stdout.strip() or "-").splitlines()
        text = f"{words[0]}: exit status {done.returncode}: {visible(printed[-1])}"
        raise SendError(text)


def post_webhook(url: str, token: str, alarm: Alarm) -> None:
    """Post the alarm as JSON; a token goes into the Authorization header. Raises :class:`SendError`."""
    headers = {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    _post(url, headers, to_json(alarm))


def post_note(base: str, number: str, token: str, alarm: Alarm) -> None:
    """Write a note on a merge request; raises :class:`SendError`."""
    if not number.isdigit():
        raise SendError(f"merge request {visible(number)!r}: expected its number")
    address = f"{base}/merge_requests/{number}/notes"
    _post(address, {"PRIVATE-TOKEN": token}, {"body": markup(alarm)})


def _post(url: str, headers: Mapping[str, str], body: Mapping[str, object]) -> None:
    """Post JSON, again if the other side is late, busy or broken; what it answers is not read.

    Raises :class:`SendError`, which names the host and no more of the address.
    """
    try:
        parts = parse.urlsplit(url)
        host = visible(parts.hostname or "")
    except ValueError:  # its text may hold what is secret
        host = ""
    if not host or parts.scheme not in ("http", "https"):
        raise SendError("the address is no http(s)://host/...")
    for pause in PAUSES:
        time.sleep(pause)
        try:
            status = _status(url, headers, body)
        except (OSError, ValueError, HTTPException) as error:
            problem = _reason(error)
            continue
        problem = f"status {status}"
        if status < 300:
            return
        if status < 400:
            raise SendError(f"{host}: {problem}: redirected, which is not followed")
        if status < 500 and status != 429:
            raise SendError(f"{host}: {problem}")
    raise SendError(f"{host}: {problem}, {len(PAUSES)} attempts")


class _NotElsewhere(request.HTTPRedirectHandler):
    """Follows no redirection: another host must not be given a token."""

    def redirect_request(self, *_: Any) -> None:
        """Return nothing: the redirection itself is the answer."""


def _status(url: str, headers: Mapping[str, str], body: Mapping[str, object]) -> int:
    """Post JSON once, and return the status of the answer."""
    said = {"Content-Type": "application/json", **headers}
    posted = request.Request(url, json.dumps(body).encode(), said)
    try:
        opener = request.build_opener(_NotElsewhere)
        with opener.open(posted, timeout=TIMEOUT) as answer:
            return int(answer.status)
    except HTTPError as error:
        error.close()
        return error.code


def _reason(error: BaseException) -> str:
    """Return the system's own words for an error, which hold no address, else the error's name."""
    inner = getattr(error, "reason", error)
    if isinstance(inner, TimeoutError):
        return f"no answer within {TIMEOUT:g} s"
    if isinstance(inner, OSError) and inner.strerror:
        return visible(inner.strerror)
    return type(inner).__name__
