"""Which words of a YAML file are numbers, truth values or text, as YAML 1.2 has it.

PyYAML follows YAML 1.1, where `4:8` is 248 (base 60), `010` is 8 (base 8), `no` is false, and
`1e-3` is text. Here `1e-3` is a number, and the others are text: where a number or a truth value
belongs they are refused.
"""

import re
from typing import Any

import yaml

TEXT = "tag:yaml.org,2002:str"
_NO_TAGS = (None, "!", TEXT)
"""What may stand as the tag of a value: none, or that of text."""

_RULES = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": (r"[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+)", [*"-+0123456789"]),
    "float": (
        (
            r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
        ),
        [*"-+.0123456789"],
    ),
    "merge": (r"<<", ["<"]),
}
"""What each type looks like, and the characters that it begins with (YAML 1.2, section 10.3.2)."""

_BASE_60 = re.compile(r"[-+]?[0-9.]+(?::[0-9.]+)+")
_LEADING_ZEROS = re.compile(r"([-+]?)0+([0-9]+)")
_TRUTHS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


TAGGED = "tagged"
"""The tag of each node that has one in the file: it may not be what that says (`!!bool maybe`)."""


class Loader(yaml.SafeLoader):
    """The safe loader with the scalars of YAML 1.2; a node with a tag is `TAGGED`."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own attribute, as it declares it

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node, after a look at its tag."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        is_tagged = getattr(event, "tag", None) not in _NO_TAGS
        node: yaml.Node | None = super().compose_node(parent, index)
        if is_tagged and node is not None:
            node.tag = TAGGED
        return node


for _name, (_pattern, _first) in _RULES.items():
    Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_pattern})\Z"), _first
    )


def joined(text: str) -> str:
    """A text in which two halves of a character, as JSON escapes them, are that character."""
    if text.isascii():
        return text
    halves = text.encode("utf-16-le", "surrogatepass")
    return halves.decode("utf-16-le", "surrogatepass")


def no_text(text: str) -> str:
    """The code of the first character of a text that no file can hold as it is; empty if all can.

    These are control characters and halves of characters, which only an escape can write.
    """
    found = yaml.reader.Reader.NON_PRINTABLE.search(text)
    return "" if found is None else found[0].encode("unicode_escape").decode()


def number_remedy(text: str) -> str:
    """What to write in place of a word that is meant as a number; empty if that is not clear."""
    text = text.replace("_", "") if re.fullmatch(r"[-+]?[0-9_]+", text) else text
    if _BASE_60.fullmatch(text):
        return f"separate several values by commas: {', '.join(text.split(':'))}"
    if zeros := _LEADING_ZEROS.fullmatch(text):
        return f"write it without the leading 0: {zeros[1]}{zeros[2]}"
    if re.fullmatch(r"[-+]?[0-9]+", text):
        return f"write {text}"
    if re.fullmatch(r"[0-9.]+[eE]\+?[0-9]", text) and float(text).is_integer():
        return f"write {float(text):.0f}"
    if text.endswith("%"):
        return _share_remedy(text)
    return ""


def _share_remedy(text: str) -> str:
    try:
        percentage = float(text.removesuffix("%"))
    except ValueError:
        return "write a percentage as a share, such as 0.2 for 20%"
    return f"write it as a share: {percentage / 100:.12g}"


def truth_remedy(text: str) -> str:
    """What to write in place of a word that is meant as a truth value; empty if not clear."""
    truth = _TRUTHS.get(text.lower())
    return f"write {truth}" if truth else ""
