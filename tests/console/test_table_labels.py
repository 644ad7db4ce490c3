"""The names of columns on the cells of a table, for narrow screens."""

from __future__ import annotations

from markupsafe import Markup

from gantrymq.console.rendering import environment
from gantrymq.console.table_labels import labelled

HEAD = '<thead><tr><th scope="col">Group</th><th scope="col" class="n">Lag <small>a &amp; b</small></th></tr></thead>'


def test_body_cell_has_label_of_column() -> None:
    body = '<tbody><tr><th scope="row">x</th><td class="n">1</td></tr><tr><th>y</th><td>2</td></tr></tbody>'
    assert str(labelled(Markup(HEAD + body))) == HEAD + (
        '<tbody><tr><th scope="row" data-label="Group">x</th><td class="n" data-label="Lag a &amp; b">1</td></tr>'
        '<tr><th data-label="Group">y</th><td data-label="Lag a &amp; b">2</td></tr></tbody>'
    )


def test_cell_without_own_column_has_no_label() -> None:
    body = '<tbody><tr><td colspan="2">Nothing.</td></tr><tr><td>1</td><td>2</td><td>3</td></tr></tbody>'
    found = str(labelled(Markup(HEAD + body)))
    assert '<td colspan="2">Nothing.</td>' in found
    assert "<td>3</td>" in found


def test_markup_in_value_creates_no_cell() -> None:
    text = '{% import "parts.html.j2" as parts %}{% call parts.table("Values") %}' + HEAD
    text += "<tbody><tr><td>{{ value }}</td><td>2</td></tr></tbody>{% endcall %}"
    shown = environment().from_string(text).render(value="</td><td>evil")
    assert '<td data-label="Group">&lt;/td&gt;&lt;td&gt;evil</td><td data-label="Lag a &amp; b">2</td>' in shown
