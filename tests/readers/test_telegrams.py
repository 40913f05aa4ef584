"""The telegrams of RASHPA against their schema, with two validators that share no code with ours."""

import json
from pathlib import Path

import pytest
import xmlschema
from lxml import etree

FABRIC = Path(__file__).resolve().parents[2] / "crates/fabric"
SCHEMA = FABRIC / "src/rashpa/telegram/telegram.xsd"
GOOD = json.loads((FABRIC / "tests/telegrams/good.json").read_text())
BAD = json.loads((FABRIC / "tests/telegrams/bad.json").read_text())


def xmlschema_says():
    schema = xmlschema.XMLSchema10(SCHEMA)

    def is_valid(text):
        try:
            return schema.is_valid(text)
        except (xmlschema.XMLSchemaException, xmlschema.XMLResourceError, SyntaxError, OSError):
            return False

    return is_valid


def lxml_says():
    schema = etree.XMLSchema(etree.parse(SCHEMA))

    def is_valid(text):
        try:
            return schema.validate(etree.fromstring(text.encode(), etree.XMLParser(resolve_entities=False)))
        except etree.XMLSyntaxError:
            return False

    return is_valid


@pytest.fixture(scope="module", params=[xmlschema_says, lxml_says])
def is_valid(request):
    return request.param()


def test_every_telegram_that_we_write_is_valid(is_valid):
    assert len(GOOD) == 72
    assert [text for text in GOOD if not is_valid(text)] == []


def test_each_kind_of_telegram_is_among_them():
    schema = SCHEMA.read_text()
    choice = schema[schema.index("<xs:choice>") : schema.index("</xs:choice>")]
    kinds = [line.split('"')[1] for line in choice.splitlines() if "xs:element" in line]
    assert len(kinds) == 18
    assert all(sum(f"\n  <{kind}" in text for text in GOOD) >= 4 for kind in kinds)


def test_what_our_reader_refuses_is_refused_by_the_schema_too(is_valid):
    """Apart from what no schema can say: a document type, and control characters."""
    assert [case["xml"] for case in BAD if is_valid(case["xml"]) and case["schema"]] == []
    assert sum(not case["schema"] for case in BAD) == 2
