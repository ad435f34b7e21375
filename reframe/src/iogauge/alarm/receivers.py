"""Where an alarm goes: a command, a webhook, a note on a merge request of GitLab.

Addresses and tokens come from the environment, never from a command line, and are in no message of ours. Text
from outside goes into a block of code, in which it can neither mention anybody nor give GitLab an order.
"""

from __future__ import annotations

import http.client
import json
import secrets
import shlex
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from iogauge.alarm.collect import Alarm
from iogauge.alarm.figure import svg
from iogauge.core.text import visible

#: Variables whose values are secrets.
SECRETS: Final = ("IOGAUGE_WEBHOOK_URL", "IOGAUGE_WEBHOOK_TOKEN", "IOGAUGE_GITLAB_TOKEN")

#: Seconds for an answer, and before each further attempt.
TIMEOUT: Final = 15.0
PAUSES: Final = (2.0, 8.0)

#: Seconds for a command.
COMMAND_TIMEOUT: Final = 120.0

#: Characters of a message; Mattermost takes 16383.
LONGEST: Final = 12_000

#: Figures that are added to a note.
_FIGURES: Final = 3
_ANSWER: Final = 1 << 16


class SendError(Exception):
    """A receiver did not get the alarm; the message names it and the reason, and holds no secret."""


@dataclass(frozen=True, slots=True)
class Message:
    """An alarm as it is sent; ``link`` leads to the whole report, empty where there is none."""

    alarm: Alarm
    link: str = ""

    @property
    def text(self) -> str:
        """Plain text, cut where it is too long for a chat."""
        text, more = self.alarm.text, f"\n\n{self.link}" if self.link else ""
        if len(text) > LONGEST:
            text = (
                text[:LONGEST].rsplit("\n", 1)[0] + "\n\n[cut here; the rest stands in the report]"
            )
        return text + more

    @property
    def markup(self) -> str:
        """The same for a chat or GitLab: everything from outside stands in a block of code."""
        body = "\n".join(self.text.removesuffix(f"\n\n{self.link}").splitlines())
        # Angle brackets are orders to Slack (<!channel>), accents end the block.
        body = body.translate({ord("`"): "'", ord("<"): "‹", ord(">"): "›"})
        return f"```\n{body}\n```" + (f"\n{self.link}" if self.link else "")

    def to_json(self) -> dict[str, object]:
        """Body for a webhook: ``text`` is what Slack, Mattermost and Teams show, the rest is for programs."""
        return {
            "text": self.markup,
            "failed": self.alarm.failed,
            "summary": self.alarm.summary,
            "systems": list(self.alarm.systems),
            "sessions": list(self.alarm.sessions),
            "troubles": [trouble.to_json() for trouble in self.alarm.troubles],
            "link": self.link,
        }


Receiver = Callable[[Message], None]


def receivers(environment: Mapping[str, str]) -> dict[str, Receiver]:
    """Receivers that an environment asks for, by name; raises ValueError for one that is asked for by halves."""
    found: dict[str, Receiver] = {}
    if command := environment.get("IOGAUGE_ALARM_COMMAND", ""):
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"IOGAUGE_ALARM_COMMAND: {error}") from None
        bare = {name: value for name, value in environment.items() if name not in SECRETS}
        found["command"] = partial(run_command, words, bare)
    if url := environment.get("IOGAUGE_WEBHOOK_URL", ""):
        found["webhook"] = partial(post_webhook, url, environment.get("IOGAUGE_WEBHOOK_TOKEN", ""))
    if token := environment.get("IOGAUGE_GITLAB_TOKEN", ""):
        number = environment.get("IOGAUGE_NOTE_ON") or environment.get("CI_MERGE_REQUEST_IID", "")
        api, project = (environment.get(name, "") for name in ("CI_API_V4_URL", "CI_PROJECT_ID"))
        if number and not (api and project):
            raise ValueError(
                "a note needs CI_API_V4_URL and CI_PROJECT_ID, which GitLab sets in its jobs"
            )
        if number:
            quoted = urllib.parse.quote(project, safe="")
            base = f"{api.rstrip('/')}/projects/{quoted}"
            found["note"] = partial(post_note, base, number, token)
    return found


def run_command(words: Sequence[str], environment: Mapping[str, str], message: Message) -> None:
    """Give the text to a command on its standard input, without a shell; raises :class:`SendError`."""
    if not words:
        raise SendError("IOGAUGE_ALARM_COMMAND is empty: expected a program and its arguments")
    try:
        done = subprocess.run(
            words,
            input=message.text + "\n",
            env=dict(environment),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SendError(f"{words[0]}: not done after {COMMAND_TIMEOUT:g} s, ended") from None
    except OSError as error:
        raise SendError(f"{words[0]}: {error.strerror or error}") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise SendError(
            f"{words[0]}: exit status {done.returncode}: {visible(said[-1]) if said else '-'}"
        )


def post_webhook(url: str, token: str, message: Message) -> None:
    """Post the alarm as JSON; a token goes into the Authorization header. Raises :class:`SendError`."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    _post(url, json.dumps(message.to_json()).encode(), "application/json", headers)


def post_note(base: str, number: str, token: str, message: Message) -> None:
    """Write a note on a merge request, with the first figures; raises :class:`SendError`.

    A figure that cannot be uploaded is left out, and the note says so.
    """
    if not number.isdigit():
        raise SendError(f"merge request {visible(number)!r}: expected its number")
    headers = {"PRIVATE-TOKEN": token}
    parts = [message.markup]
    curves = [one.curve for one in message.alarm.troubles if one.curve][:_FIGURES]
    for place, curve in enumerate(curves, 1):
        body, kind = _multipart(f"iogauge-{place}.svg", svg(curve, alone=True).encode())
        try:
            answer = json.loads(_post(f"{base}/uploads", body, kind, headers))
            parts.append(str(answer["markdown"]))
        except (SendError, ValueError, LookupError, TypeError) as error:
            reason = error if isinstance(error, SendError) else "GitLab's answer is not understood"
            parts.append(f"(figures could not be uploaded: {reason})")
            break
    note = json.dumps({"body": "\n\n".join(parts)}).encode()
    _post(f"{base}/merge_requests/{number}/notes", note, "application/json", headers)


def _multipart(name: str, data: bytes) -> tuple[bytes, str]:
    """A form with one file, and its content type."""
    boundary = secrets.token_hex(16)
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: image/svg+xml\r\n\r\n"
    )
    return (
        head.encode() + data + f"\r\n--{boundary}--\r\n".encode(),
        f"multipart/form-data; boundary={boundary}",
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: another host must not be given a token."""

    def redirect_request(self, *_: object) -> None:
        return None


def _post(url: str, body: bytes, kind: str, headers: Mapping[str, str]) -> bytes:
    """Post, and again where the other side is late, busy or broken; returns the answer.

    Raises :class:`SendError`, which names the host and no more of the address.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host = visible(parts.hostname or "")
    except ValueError:  # its text may hold what is secret
        raise SendError("the address is no http(s)://host/...") from None
    if parts.scheme not in ("http", "https") or not host:
        raise SendError("the address is no http(s)://host/...")
    opener = urllib.request.build_opener(_NoRedirect)
    problem = ""
    for pause in (*PAUSES, None):
        try:
            request = urllib.request.Request(url, body, {"Content-Type": kind, **headers})
            with opener.open(request, timeout=TIMEOUT) as answer:
                return _read(answer)
        except urllib.error.HTTPError as error:
            error.close()
            problem = f"status {error.code}"
            if 300 <= error.code < 400:
                raise SendError(f"{host}: {problem}: redirected, which is not followed") from None
            if error.code < 500 and error.code != 429:
                raise SendError(f"{host}: {problem}") from None
        except TimeoutError:
            problem = f"no answer within {TIMEOUT:g} s"
        except urllib.error.URLError as error:
            late = isinstance(error.reason, TimeoutError)
            problem = f"no answer within {TIMEOUT:g} s" if late else _reason(error.reason)
        except (OSError, http.client.HTTPException, ValueError) as error:
            problem = type(error).__name__
        if pause is not None:
            time.sleep(pause)
    raise SendError(f"{host}: {problem}, {len(PAUSES) + 1} attempts")


def _read(answer: http.client.HTTPResponse) -> bytes:
    """The beginning of an answer; raises TimeoutError where that does not come to an end."""
    until, data = time.monotonic() + TIMEOUT, b""
    while len(data) < _ANSWER and (part := answer.read1(_ANSWER)):
        data += part
        if time.monotonic() > until:
            raise TimeoutError
    return data


def _reason(error: object) -> str:
    """Words for what kept a connection from being made; the system's own, which hold no address."""
    text = getattr(error, "strerror", None)
    return visible(str(text)) if text else type(error).__name__
