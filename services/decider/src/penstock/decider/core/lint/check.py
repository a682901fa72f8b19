"""All rules, and asking them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.decider.core.lint import hosts, promises, steps
from penstock.decider.core.lint.facts import Facts, Finding, Level, Rule


def _rule(level: Level, find: Callable[[Facts], Iterator[str]]) -> Rule:
    about = (find.__doc__ or "").strip()
    return Rule(name=find.__name__.replace("_", "-"), level=level, about=about, find=find)


RULES: tuple[Rule, ...] = (
    _rule("error", promises.cold_start),
    _rule("error", hosts.minimums_beyond_hosts),
    _rule("error", hosts.too_large_a_worker),
    _rule("error", steps.always_stale),
    _rule("warning", promises.too_few_workers),
    _rule("warning", promises.strategy_ignores_promise),
    _rule("warning", promises.slow_measuring),
    _rule("warning", hosts.short_drain),
    _rule("warning", steps.late_drain),
    _rule("warning", steps.slow_steps_up),
    _rule("warning", steps.opposed_policies),
    _rule("warning", steps.budget_below_minimum),
    _rule("warning", steps.short_settling),
    _rule("warning", steps.only_advised),
)


def lint(facts: Facts) -> list[Finding]:
    """All findings, errors first."""
    return [
        Finding(rule=rule.name, level=rule.level, text=text)
        for rule in RULES
        for text in rule.find(facts)
    ]
