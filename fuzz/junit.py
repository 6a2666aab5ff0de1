"""A run's record as JUnit XML, for CI servers: one test case a shard and one a finding."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from fuzz.record import FindingRecord, Record, TargetRecord

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # by XML 1.0


def junit(record: Record) -> str:
    """The file's text. New findings are failures, known ones skipped, shards that did not end errors."""
    root = ET.Element("testsuites", name="aliasfuzz")
    for name, target in record.targets.items():
        root.append(_suite(record, name, target))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(record: Record, name: str, target: TargetRecord) -> ET.Element:
    missing = {shard for where, shard in record.missing if where == name}
    shards = record.options.shards if record.options is not None else ()
    new = sum(not finding.known for finding in target.findings)
    suite = ET.Element(
        "testsuite",
        name=f"aliasfuzz.{name}",
        tests=str(len(shards) + len(target.findings)),
        failures=str(new),
        errors=str(len(missing)),
        skipped=str(len(target.findings) - new),
        time=f"{target.seconds:.3f}",
    )
    for shard in shards:
        case = _case(suite, name, f"shard {shard}", target.seconds)
        if shard in missing:
            _note(case, "error", "the shard did not end", "\n".join(record.rerun))
    for finding in target.findings:
        _finding(suite, name, finding)
    return suite


def _finding(suite: ET.Element, name: str, finding: FindingRecord) -> None:
    case = _case(suite, name, f"finding {finding.signature}", 0.0)
    about = f"{finding.text}\n\n{finding.program}\n\nsaved as {finding.path}"
    headline = finding.text.splitlines()[0] if finding.text else finding.signature
    if finding.known:
        _note(case, "skipped", f"known: {headline}")
        ET.SubElement(case, "system-out").text = _clean(about)
    else:
        _note(case, "failure", headline, about)


def _case(suite: ET.Element, target: str, name: str, seconds: float) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=f"aliasfuzz.{target}", name=_clean(name), time=f"{seconds:.3f}")


def _note(case: ET.Element, kind: str, message: str, text: str = "") -> None:
    ET.SubElement(case, kind, message=_clean(message)).text = _clean(text) or None


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
