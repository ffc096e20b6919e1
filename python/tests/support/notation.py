"""Parses the notation of golden vectors: names, strings, ids and claims."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TypeVar

from leasehold import BucketType, Claim, Source, SourceType, Subject, SubjectType, encode_source_id

TOKEN = re.compile(r'(?:"(?:\\.|[^"\\])*"|\S)+')
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", '"': '"', "\\": "\\"}
Kind = TypeVar("Kind", bound=IntEnum)


def tokens(text: str) -> list[str]:
    """Split a line of a golden vector into words, at spaces outside quotes."""
    return TOKEN.findall(text)


def read_text(token: str) -> str:
    """Return the string that `"text"`, or `"text"*N` for N repetitions, stands for."""
    end = token.rindex('"')
    text = re.sub(r"\\u\{([0-9a-f]+)\}|\\(.)", _unescape, token[1:end])
    return text * int(token[end + 2 :] or 1)


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else ESCAPES[match[2]]


def read_number(token: str, kinds: type[Kind], prefix: str) -> int:
    """Return the wire number of an enum member's name, or N for the notation `prefix#N`."""
    return int(token.removeprefix(f"{prefix}#")) if token.startswith(f"{prefix}#") else kinds[token].value


def write_number(number: int, kinds: type[Kind], prefix: str) -> str:
    """Return a wire number in the notation that `read_number` reads."""
    return kinds(number).name if number in set(kinds) else f"{prefix}#{number}"


def read_id(token: str) -> bytes:
    """Return the bytes of a source id, written as a number, as a quoted string, or as `x` and hexadecimal digits."""
    if token.startswith('"'):
        return read_text(token).encode()
    return bytes.fromhex(token[1:]) if token.startswith("x") else encode_source_id(int(token))


def is_source(token: str) -> bool:
    """Return True if a word is a source such as `USERS:7`, False if it is a subject such as `USER:7`."""
    name = token.partition(":")[0]
    return name.startswith("source#") or name in SourceType.__members__


def read_source(token: str) -> Source:
    """Return the source that the notation `TABLE:ID` stands for."""
    table, _, key = token.partition(":")
    return Source(read_number(table, SourceType, "source"), read_id(key))


def read_subject(token: str) -> Subject:
    """Return the subject that the notation `SUBJECT:ID` stands for."""
    kind, _, key = token.partition(":")
    return Subject(read_number(kind, SubjectType, "subject"), int(key))


def read_claim(words: list[str]) -> Claim:
    """Return the claim that these words stand for: a type, a value, and an optional subject and source."""
    subject = next((read_subject(word) for word in words[2:] if not is_source(word)), None)
    source = next((read_source(word) for word in words[2:] if is_source(word)), None)
    return Claim(read_number(words[0], BucketType, "bucket"), read_text(words[1]), subject, source)


def read_claims(words: list[str]) -> list[Claim]:
    """Return one claim, or N numbered claims if the first word is `xN`. `%` in a word stands for the number."""
    if not re.fullmatch(r"x\d+", words[0]):
        return [read_claim(words)]
    return [read_claim(numbered(words[1:], copy)) for copy in range(1, int(words[0][1:]) + 1)]


def numbered(words: list[str], number: int) -> list[str]:
    """Return the words with `%` replaced by a number."""
    return [word.replace("%", str(number)) for word in words]


def split_before(words: list[str], starts: re.Pattern[str]) -> list[list[str]]:
    """Return the list of words, split before each word that matches `starts`."""
    parts: list[list[str]] = []
    for word in words:
        if starts.match(word) or not parts:
            parts.append([])
        parts[-1].append(word)
    return parts
