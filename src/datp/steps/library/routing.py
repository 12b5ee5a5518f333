"""Steps that go on with other pipelines: the one that fits, several side by side, or one for each item of a list."""

from typing import Annotated, Any, Final, Literal

import msgspec

from datp.errors import BadDefinition, BadRequest
from datp.model.expressions import Scope, check_templates, parse_expression, render
from datp.model.ids import parse_name
from datp.model.outcome import Aborted, Branch, Failed, Outcome, Parallel, RunPipeline, Success
from datp.model.pipeline import needed
from datp.model.values import shown
from datp.steps.context import Context
from datp.steps.contract import Example, step
from datp.steps.definition import Definition, ExpressionText, TemplateJson, says
from datp.steps.library.paths import MISSING, parse_path, value_at

ITEMS_MAX: Final = 1_000
"""Of a list that is mapped: each has an entry in the flow, and a part in the output."""

ROUTES_MAX: Final = 200


class Route(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A pipeline, and when it is the one: an expression, or values that fields must have; with both, both."""

    pipeline: str
    when: str = ""
    """An expression."""
    where: dict[str, Any] = {}
    """By path into the input: the value, or a list of those that are allowed."""

    def __post_init__(self) -> None:
        try:
            parse_name(self.pipeline, "pipeline")
            if self.when:
                parse_expression(self.when, "when")
            for path in self.where:
                parse_path(path, "where")
        except BadRequest as error:
            raise ValueError(str(error)) from None
        if not self.when and not self.where:
            raise ValueError(f"the route to {self.pipeline} has no condition; the default is `default`")

    def fits(self, scope: Scope) -> bool:
        """Whether all that it asks for holds."""
        given = scope.get("input")
        for path, wanted in self.where.items():
            value = value_at(given, parse_path(path, "where"))
            allowed = wanted if isinstance(wanted, list) else [wanted]
            if value is MISSING or not any(_same(value, one) for one in allowed):
                return False
        return not self.when or parse_expression(self.when, "when").is_true(scope)


def _same(value: Any, wanted: Any) -> bool:
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


class RouteDefinition(Definition):
    routes: Annotated[
        list[Route], says("each `{pipeline, where: {path: value}, when: expression}`; the first that fits is taken")
    ]
    default: Annotated[str, says("the pipeline when none fits; empty: the step fails")] = ""
    input: Annotated[TemplateJson, says("what the pipeline is given; default: the step's input")] = msgspec.UNSET

    def check(self) -> None:
        if self.default:
            parse_name(self.default, "default")
        if not self.routes and not self.default:
            raise BadDefinition("routes: there is nowhere to go", field="routes")
        if len(self.routes) > ROUTES_MAX:
            raise BadDefinition(f"routes: there are more than {ROUTES_MAX}", field="routes")

    def pipelines(self) -> list[str]:
        return [*(route.pipeline for route in self.routes), *([self.default] if self.default else [])]


class SideBySide(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A branch: a pipeline, its input, and whether it is started."""

    pipeline: str
    input: Any = msgspec.UNSET
    when: str = ""

    def __post_init__(self) -> None:
        try:
            parse_name(self.pipeline, "pipeline")
            if self.when:
                parse_expression(self.when, "when")
            if self.input is not msgspec.UNSET:
                check_templates(self.input, "input")
        except BadRequest as error:
            raise ValueError(str(error)) from None


class ParallelDefinition(Definition):
    branches: Annotated[list[SideBySide], says("each `{pipeline, input, when: expression}`")]
    join: Annotated[str | int, says("how many must succeed: `all`, `first`, a number, or `settled`: none has to")] = (
        "all"
    )

    def check(self) -> None:
        if not self.branches:
            raise BadDefinition("branches: there are none", field="branches")
        needed(self.join, len(self.branches))

    def pipelines(self) -> list[str]:
        return [branch.pipeline for branch in self.branches]


class MapDefinition(Definition):
    pipeline: Annotated[str, says("what each item is given to")]
    items: Annotated[ExpressionText, says("what comes to the list")] = "input"
    input: Annotated[
        TemplateJson, says("what the pipeline is given, with `item` and `index` in its scope; default: the item")
    ] = msgspec.UNSET
    limit: Annotated[int, msgspec.Meta(ge=1, le=100), says("how many run at the same time")] = 10
    on_error: Annotated[
        Literal["stop", "continue"],
        says("when one doesn't succeed: `stop` starts no more and fails, `continue` leaves it to the output"),
    ] = "stop"
    items_max: Annotated[int, msgspec.Meta(ge=1, le=ITEMS_MAX), says("a longer list fails")] = 200

    def check(self) -> None:
        parse_name(self.pipeline, "pipeline")

    def pipelines(self) -> list[str]:
        return [self.pipeline]


def _doubles(name: str, field: str) -> dict[str, Any]:
    reply = {"reply": {"from": name, "got": f"${{input{field}}}"}}
    return {"name": name, "steps": [{"id": "say", "step": "util/fixed-reply", "with": reply}]}


@step(
    "pipeline/route",
    default_definition={"routes": [{"where": {"customer.country": "PH"}, "pipeline": "kyc-ph"}], "default": "kyc"},
    examples=[
        Example(
            "By a field, by several, by a condition, or not at all.",
            {
                "routes": [
                    {"where": {"customer.country": ["PH", "TH"], "kind": "person"}, "pipeline": "asia"},
                    {"when": "input.amount > `1000`", "pipeline": "large"},
                ],
                "default": "usual",
                "input": "${input.customer}",
            },
            input={"kind": "person", "amount": 7, "customer": {"country": "PH", "name": "Ada"}},
            output={"from": "asia", "got": "Ada"},
            pipelines=[_doubles("asia", ".name"), _doubles("large", ".name"), _doubles("usual", ".name")],
        ),
        Example(
            "Nothing fits, and there is no default.",
            {"routes": [{"where": {"kind": "gold"}, "pipeline": "gold"}]},
            input={"kind": "tin"},
            output={"error": "no route fits, and there is no default"},
            status="failed",
            pipelines=[_doubles("gold", "")],
        ),
    ],
)
async def route(context: Context, definition: RouteDefinition) -> Outcome:
    """Goes on with the child pipeline that fits the input; its status and output become the step's.

    A field is named by its path, and must have the value (or one of a list of values): 1 is not true, and not "1".
    """
    scope = context.scope
    name = next((one.pipeline for one in definition.routes if one.fits(scope)), definition.default)
    if not name:
        note = "no route fits, and there is no default"
        return Failed({"error": note}, note)
    given = definition.input if definition.input is msgspec.UNSET else render(definition.input, scope)
    return RunPipeline(name, given)


@step(
    "pipeline/parallel",
    default_definition={"branches": [{"pipeline": "price"}, {"pipeline": "stock"}], "join": "all"},
    examples=[
        Example(
            "Two lookups side by side, each with its own part of the input; a third is not needed.",
            {
                "branches": [
                    {"pipeline": "price", "input": {"sku": "${input.sku}"}},
                    {"pipeline": "stock", "input": {"sku": "${input.sku}"}},
                    {"pipeline": "tax", "when": "input.country != 'PH'"},
                ]
            },
            input={"sku": "pen", "country": "PH"},
            output=[
                {"pipeline": "price", "status": "success", "output": {"from": "price", "got": "pen"}, "note": None},
                {"pipeline": "stock", "status": "success", "output": {"from": "stock", "got": "pen"}, "note": None},
            ],
            pipelines=[_doubles("price", ".sku"), _doubles("stock", ".sku"), _doubles("tax", ".sku")],
        )
    ],
)
async def parallel(context: Context, definition: ParallelDefinition) -> Outcome:
    """Runs pipelines side by side; the output is the list of what they came to, in the order given here.

    Where neither conditions nor expressions are needed, a step says the same as `parallel: {branches: [{pipeline}]}`.
    Without a branch whose condition holds, the output is an empty list.
    """
    scope = context.scope
    branches = [
        Branch(one.pipeline, one.input if one.input is msgspec.UNSET else render(one.input, scope))
        for one in definition.branches
        if not one.when or parse_expression(one.when, "when").is_true(scope)
    ]
    if not branches:
        return Success([])
    most = context.tools.settings.parallel_width_max
    if len(branches) > most:
        raise BadRequest(f"{len(branches)} branches are more than parallel_width_max ({most})")
    return Parallel(branches, needed(definition.join, len(branches)) or "settled")


@step(
    "pipeline/map",
    default_definition={"items": "input.lines", "pipeline": "line", "limit": 10, "onError": "stop"},
    examples=[
        Example(
            "A pipeline for each line of an order, two at a time.",
            {"items": "input.lines", "pipeline": "line", "input": {"sku": "${item}", "n": "${index}"}, "limit": 2},
            input={"lines": ["pen", "ink", "cap"]},
            output=[{"from": "line", "got": "pen"}, {"from": "line", "got": "ink"}, {"from": "line", "got": "cap"}],
            pipelines=[_doubles("line", ".sku")],
        ),
        Example(
            "One that fails doesn't stop the others.",
            {"pipeline": "careful", "onError": "continue"},
            input=[1, -1],
            output=[
                {"status": "success", "output": 1, "note": None},
                {"status": "failed", "output": {"error": "too small"}, "note": "too small"},
            ],
            pipelines=[
                {
                    "name": "careful",
                    "steps": [
                        {
                            "id": "look",
                            "step": "util/require",
                            "with": {"condition": "input > `0`", "note": "too small"},
                        }
                    ],
                }
            ],
        ),
    ],
)
async def map_items(context: Context, definition: MapDefinition) -> Outcome:
    """Runs a pipeline for each item of a list, some at a time; the output is the list of theirs, in the list's order.

    They run in rounds of `limit`: when one round has ended, the next begins. With `onError: continue` the output holds
    `{status, output, note}` of each, and the step succeeds. With `stop` it fails after the round in which one did (or
    is aborted, if that one was), and what the others did is undone with the transaction.
    """
    scope = context.scope
    items = parse_expression(definition.items, "items").value(scope)
    if not isinstance(items, list):
        raise BadRequest(f"items: {definition.items} comes to no list, but to {shown(items)}")
    if len(items) > definition.items_max:
        raise BadRequest(f"items: the list has {len(items)} items, more than itemsMax ({definition.items_max})")
    done: list[dict[str, Any]] = list(context.saved or []) if context.joined is not None else []
    for ended in context.joined or []:
        done.append({name: ended[name] for name in ("status", "output", "note")})
    if definition.on_error == "stop":
        unlucky = next((one for one in done if one["status"] != "success"), None)
        if unlucky is not None:
            note = f"item {done.index(unlucky)} ended {unlucky['status']}: {unlucky['note'] or 'it does not say why'}"
            output = {"error": note, "items": done}
            return Aborted(output, note) if unlucky["status"] == "aborted" else Failed(output, note)
    if len(done) == len(items):
        return Success(done if definition.on_error == "continue" else [one["output"] for one in done])
    width = min(definition.limit, context.tools.settings.parallel_width_max)
    branches = []
    for index in range(len(done), min(len(done) + width, len(items))):
        given = items[index]
        if definition.input is not msgspec.UNSET:
            given = render(definition.input, scope.having(item=given, index=index))
        branches.append(Branch(definition.pipeline, given))
    return Parallel(branches, "settled", again=True, saved=done)
