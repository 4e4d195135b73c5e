"""Features from a formula such as "age + C(country)", read by formulaic."""

from __future__ import annotations

import ast
import re
from typing import Any

from metabandit.checking import count
from metabandit.errors import InvalidInput, MissingExtra
from metabandit.features.base import INTERCEPT
from metabandit.features.columns import Designed, levels_of
from metabandit.features.computed import Computed
from metabandit.features.design import Design
from metabandit.features.source import MAX_LEVELS, Source
from metabandit.features.tables import Keys, Table, frame_table, record_table
from metabandit.features.term import Term


class Formula(Designed):
    """Columns by a formula: numbers, categories, interactions and expressions.

    Without a sample everything is found as it comes: a column is a category if its first value is text or
    a bool, or if it stands in C(...); each level (each combination of levels, in an interaction) is a new
    column at the end. There is no reference level: the prior identifies them all. With sample=, a data frame,
    the levels are those of the sample, functions such as center(), bs() and poly() learn from it, and an
    unseen level counts as the average.

    >>> from metabandit import features
    >>> made = features.Formula("age + C(country) + np.log(visits)")
    >>> made.rows([{"age": 31, "country": "NO", "visits": 1.0}, {"age": 35, "country": "SE"}])
    array([[ 1.,  0., 31.,  1.,  0.],
           [ 1.,  0., 35.,  0.,  1.]])
    >>> made.columns
    ['intercept', 'np.log(visits)', 'age', 'country[NO]', 'country[SE]']
    """

    settings = ("text", "sampled", "max_levels")

    def __init__(self, formula: str, sample: Any = None, max_levels: int = MAX_LEVELS) -> None:
        if not isinstance(formula, str) or not formula.strip():
            raise InvalidInput("formula", formula, 'text such as "age + C(country)"')
        self.text, self._max_levels = formula, count("max_levels", max_levels)
        self._build(sample is not None)
        if sample is not None:
            keys = Keys(self.names)
            self._fit(record_table(sample, keys) if isinstance(sample, list) else frame_table(sample, keys))

    def _build(self, fit: bool) -> None:
        self._sampled = fit
        parsed = Parsed(self.text, fit, self._max_levels)
        self.names = list(dict.fromkeys(source.name for source in parsed.sources))
        self._use(Design(parsed.sources, parsed.terms))

    def _fit(self, table: Table) -> None:
        """Levels, transforms and means from the sample; then every column there will ever be."""
        design = self._design
        numbers = {}
        for s, source in enumerate(design.sources):
            values, _ = source.read(table.column(source.name))
            if source.kind == "open":
                raise InvalidInput(
                    "sample", f"<a frame without values of {source.name!r}>", "at least one value"
                )
            if source.kind == "number":
                numbers[s] = values
            else:
                source.fix()
        for factor in design.computed:
            factor.learn(numbers, table.n)
        self._use(Design(design.sources, [Term(term.name, term.factors) for term in design.terms]))
        self._design.rows(table)  # for the means

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "Formula",
            "text": self.text,
            "sampled": self._sampled,
            "max_levels": self._max_levels,
            "learned": self._design.spec(),
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Formula:
        made = cls.__new__(cls)
        made.text, made._max_levels = spec["text"], spec["max_levels"]
        made._build(spec["sampled"])
        made._design.restore(spec["learned"])
        return made


class Parsed:
    """The sources and the terms of a formula."""

    def __init__(self, text: str, fit: bool, max_levels: int) -> None:
        self.fit, self.max_levels = fit, max_levels
        self.sources: list[Source] = []
        self.terms: list[Term] = []
        self._computed: dict[str, Computed] = {}
        self._asked: dict[tuple[str, bool], int] = {}
        for term in _terms(text):
            if len(term.factors) > 6:
                raise InvalidInput(
                    "formula", f"<the interaction {term}>", "interactions of at most 6 factors"
                )
            factors = [factor for factor in term.factors if str(factor.expr) != "1"]
            made = [self._factor(str(factor.expr), factor.eval_method.value) for factor in factors]
            self.terms.append(Term(":".join(map(self._name, made)) or INTERCEPT, made))
        for (name, category), s in self._asked.items():
            if category and (name, False) in self._asked:
                self.sources[s].title = f"C({name})"
        for term in self.terms:
            term.name = ":".join(map(self._name, term.factors)) or INTERCEPT

    def _name(self, factor: int | Computed) -> str:
        return (
            factor.text
            if isinstance(factor, Computed)
            else self.sources[factor].title or self.sources[factor].name
        )

    def _factor(self, text: str, method: str) -> int | Computed:
        if method == "lookup":
            return self._source(text, "open")
        if method == "literal":
            raise InvalidInput(
                "formula", f"<the factor {text}>", "no factors of numbers: coefficients have any scale"
            )
        tree, names = _python(text)
        if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "Q" and len(tree.args) == 1:
            return self._source(str(ast.literal_eval(tree.args[0])), "open")
        if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "C":
            return self._category(text, tree, names)
        if text not in self._computed:

            def number(name: str) -> int:
                return self._source(names.get(name, name), "number")

            self._computed[text] = Computed(text, tree, number, self.fit)
        return self._computed[text]

    def _category(self, text: str, tree: ast.Call, names: dict[str, str]) -> int:
        options = {str(keyword.arg): keyword.value for keyword in tree.keywords}
        if len(tree.args) != 1 or not isinstance(tree.args[0], ast.Name) or set(options) - {"levels"}:
            accepted = (
                "C(column) or C(column, levels=[...]): every level has a column, so there are no contrasts"
            )
            raise InvalidInput("formula", f"<{text!r}>", accepted)
        place = self._source(names.get(tree.args[0].id, tree.args[0].id), "category")
        if options:
            source = self.sources[place]
            source.levels, source.fixed = levels_of("formula", _listed(text, options["levels"])), True
        return place

    def _source(self, name: str, kind: str) -> int:
        """The place of a column, as a category or not; one that is computed with is a number."""
        key = (name, kind == "category")
        if key not in self._asked:
            self._asked[key] = len(self.sources)
            self.sources.append(Source(name, kind, max_levels=self.max_levels))
        source = self.sources[self._asked[key]]
        if kind == "number":
            source.kind = kind
        return self._asked[key]


def _listed(text: str, node: ast.expr) -> list[Any]:
    try:
        return list(ast.literal_eval(node))
    except (ValueError, TypeError):
        raise InvalidInput("formula", f"<{text!r}>", "levels=[...], a plain list") from None


def _terms(text: str) -> list[Any]:
    try:
        import formulaic
        import formulaic.errors
    except ImportError:
        raise MissingExtra("formulas", "metadata", "formulaic") from None
    accepted = 'the right-hand side of a formula, such as "age + C(country)"'
    try:
        parsed = formulaic.Formula(text)
    except (formulaic.errors.FormulaParsingError, SyntaxError) as error:
        reason = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", str(error)).strip().split("\n")[0]
        raise InvalidInput("formula", text, f"{accepted} ({reason})") from None
    if not isinstance(parsed, formulaic.SimpleFormula):
        raise InvalidInput("formula", text, accepted)
    terms = list(parsed)
    if not terms:
        raise InvalidInput("formula", text, "a formula with at least one term")
    return terms


def _python(text: str) -> tuple[ast.expr, dict[str, str]]:
    """An expression as a tree, and the names that stood in `backticks` by what stands for them."""
    names: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        stand_in = f"quoted_{len(names)}_"
        names[stand_in] = match.group(1)
        return stand_in

    try:
        return ast.parse(re.sub(r"`([^`]*)`", replaced, text), mode="eval").body, names
    except SyntaxError:
        raise InvalidInput("formula", text, "expressions in Python") from None
