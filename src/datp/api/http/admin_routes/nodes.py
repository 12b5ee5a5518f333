"""Queues, nodes and node groups: how they are, and what they are asked to do."""

from typing import Annotated, Any

import msgspec

from datp.api.admin import LiveNode, NodeAnswer, live_nodes
from datp.api.http.admin_routes.common import ADMIN, OPERATOR, Group, Reason, act
from datp.api.http.api import Api
from datp.api.http.routes import Answer, Call, Route, Words
from datp.api.listing import Queues, count_queues
from datp.errors import BadDefinition, DatabaseError, NotFound
from datp.model.values import shown

TIMEOUT_MAX_S = 60


class NodesQuery(Words, frozen=True):
    node_group: Annotated[str, msgspec.Meta(description="Only nodes of this group.")] = ""


class OneNode(Words, frozen=True):
    node_id: Annotated[str, msgspec.Meta(description="The node.", examples=["n0123456789"])]


class OneGroup(Words, frozen=True):
    node_group: Group


class Asking(Reason, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Whom to ask, and how long to wait for the answers."""

    node_id: str = ""
    """This node; by default every one."""
    node_group: str = ""
    """Every node of this group."""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_MAX_S)] | None = None
    """Seconds; by default as the setting `admin_timeout_ms` says."""


class SetWorkers(Asking, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """How many worker slots."""

    workers: Annotated[int, msgspec.Meta(ge=0, le=10_000)]


class GroupChange(Reason, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Settings that the nodes of a group share."""

    settings: dict[str, int | str | None]
    """Those that change; null is the default again. The others stay."""


class Nodes(msgspec.Struct, frozen=True, rename="camel"):
    """The nodes that are alive, by group."""

    nodes: list[LiveNode]


class Answers(msgspec.Struct, frozen=True, rename="camel"):
    """What each node said."""

    ok: bool
    """All of them have answered, and did it."""
    answers: list[NodeAnswer]


class NodeGroup(msgspec.Struct, frozen=True, rename="camel"):
    """A node group, with the settings that its nodes share."""

    name: str
    settings: dict[str, Any]
    nodes: int
    """How many are alive."""


class NodeGroups(msgspec.Struct, frozen=True, rename="camel"):
    """All that are known."""

    node_groups: list[NodeGroup]


class StepTypeOfGroup(msgspec.Struct, frozen=True, rename="camel"):
    """A step type that nodes of a group have."""

    name: str
    description: str
    default_definition: Any
    in_every_node: bool
    """Else a transaction fails on the nodes that lack it: they run different code."""


class StepTypesOfGroup(msgspec.Struct, frozen=True, rename="camel"):
    """What the nodes of a group can run."""

    node_group: str
    nodes: int
    step_types: list[StepTypeOfGroup]


class StepTypes(msgspec.Struct, frozen=True, rename="camel"):
    """What each group can run."""

    node_groups: list[StepTypesOfGroup]


class NodeRoutes:
    """The routes, over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        tag = "operators: nodes"
        looking: dict[str, Any] = {**OPERATOR, "tag": tag, "method": "GET"}
        asking: dict[str, Any] = {**OPERATOR, "tag": tag, "method": "POST", "refusals": (NotFound,)}
        return [
            Route(path="/v1/admin/queues", handler=self.admin_queues, **looking),
            Route(path="/v1/admin/nodes", handler=self.admin_list_nodes, **looking),
            Route(path="/v1/admin/step-types", handler=self.admin_list_step_types, **looking),
            Route(path="/v1/admin/nodes/{nodeId}", handler=self.admin_show_node, refusals=(NotFound,), **looking),
            Route(path="/v1/admin/nodes/ping", handler=self.admin_ping, **asking),
            Route(path="/v1/admin/nodes/reload", handler=self.admin_reload, **asking),
            Route(path="/v1/admin/nodes/pause", handler=self.admin_pause, **asking),
            Route(path="/v1/admin/nodes/resume", handler=self.admin_resume, **asking),
            Route(path="/v1/admin/nodes/drain", handler=self.admin_drain, **asking),
            Route(path="/v1/admin/nodes/set-workers", handler=self.admin_set_workers, **asking),
            Route(path="/v1/admin/node-groups", handler=self.admin_list_groups, **looking),
            Route(
                path="/v1/admin/node-groups/{nodeGroup}", handler=self.admin_show_group, refusals=(NotFound,), **looking
            ),
            Route(
                method="PATCH",
                path="/v1/admin/node-groups/{nodeGroup}",
                handler=self.admin_change_group,
                tag=tag,
                refusals=(BadDefinition, DatabaseError),
                **ADMIN,
            ),
        ]

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────

    async def admin_queues(self, call: Call) -> Answer[Queues]:
        """Tell what waits in the queues of each node group, and how many transactions are in each place."""
        await self._api.definitions.reload()
        found = await count_queues(self._api.store, self._api.definitions.groups())
        nodes = await live_nodes(self._api.store)
        for group in found.groups:
            group.nodes = sum(node.node_group == group.node_group for node in nodes)
        return Answer(found)

    async def admin_list_nodes(self, call: Call, query: NodesQuery) -> Answer[Nodes]:
        """List the nodes that are alive, as they say of themselves."""
        return Answer(Nodes(await live_nodes(self._api.store, group=query.node_group)))

    async def admin_show_node(self, call: Call, path: OneNode) -> Answer[LiveNode]:
        """Show a node that is alive."""
        nodes = await live_nodes(self._api.store, node_id=path.node_id)
        if not nodes:
            raise NotFound(f"There is no live node {shown(path.node_id)}")
        return Answer(nodes[0])

    async def admin_list_step_types(self, call: Call) -> Answer[StepTypes]:
        """List the step types that the live nodes of each group have."""
        by_group: dict[str, list[LiveNode]] = {}
        for node in await live_nodes(self._api.store):
            by_group.setdefault(node.node_group, []).append(node)
        groups = []
        for group, nodes in sorted(by_group.items()):
            known: dict[str, dict[str, Any]] = {}
            for node in nodes:
                known.update((one["name"], one) for one in node.step_types)
            named = [{one["name"] for one in node.step_types} for node in nodes]
            types = [
                StepTypeOfGroup(
                    name, one["description"], one.get("defaultDefinition"), all(name in names for names in named)
                )
                for name, one in sorted(known.items())
            ]
            groups.append(StepTypesOfGroup(group, len(nodes), types))
        return Answer(StepTypes(groups))

    async def admin_list_groups(self, call: Call) -> Answer[NodeGroups]:
        """List the node groups, with the settings that their nodes share."""
        return Answer(NodeGroups(await self._groups()))

    async def admin_show_group(self, call: Call, path: OneGroup) -> Answer[NodeGroup]:
        """Show a node group."""
        for group in await self._groups():
            if group.name == path.node_group:
                return Answer(group)
        raise NotFound(f"There is no node group {shown(path.node_group)}")

    async def _groups(self) -> list[NodeGroup]:
        await self._api.definitions.reload()
        nodes = await live_nodes(self._api.store)
        return [
            NodeGroup(name, values, sum(node.node_group == name for node in nodes))
            for name, values in sorted(self._api.definitions.groups().items())
        ]

    # ── acting ───────────────────────────────────────────────────────────────────────────────────────────────

    async def admin_ping(self, call: Call, body: Asking) -> Answer[Answers]:
        """Ask nodes whether they are there, and how busy."""
        return await self._ask(call, "ping", {}, body)

    async def admin_reload(self, call: Call, body: Asking) -> Answer[Answers]:
        """Have nodes read pipelines and their group's settings now; they do by themselves within a second."""
        return await self._ask(call, "reload-definitions", {}, body)

    async def admin_pause(self, call: Call, body: Asking) -> Answer[Answers]:
        """Have nodes take nothing more; what runs goes on."""
        return await self._ask(call, "pause", {}, body)

    async def admin_resume(self, call: Call, body: Asking) -> Answer[Answers]:
        """Have nodes that were paused or drained take work again."""
        return await self._ask(call, "resume", {}, body)

    async def admin_drain(self, call: Call, body: Asking) -> Answer[Answers]:
        """Have nodes take nothing more, and answer when nothing runs on them; then they can be stopped."""
        return await self._ask(call, "drain", {}, body)

    async def admin_set_workers(self, call: Call, body: SetWorkers) -> Answer[Answers]:
        """Give nodes this many worker slots, until they end or their group's setting changes."""
        return await self._ask(call, "set-workers", {"workers": body.workers}, body)

    async def _ask(self, call: Call, kind: str, args: dict[str, Any], body: Asking) -> Answer[Answers]:
        answers = await self._api.operations.ask_nodes(
            act(call, body.reason),
            kind,
            args,
            node_id=body.node_id,
            group=body.node_group,
            timeout_s=body.timeout or self._api.settings.admin_timeout_ms / 1000,
        )
        return Answer(Answers(all(answer.ok for answer in answers), answers))

    async def admin_change_group(self, call: Call, path: OneGroup, body: GroupChange) -> Answer[NodeGroup]:
        """Make a node group known, or change the settings that its nodes share; they take them over in a second."""
        await self._api.operations.save_group(act(call, body.reason), path.node_group, body.settings)
        return await self.admin_show_group(call, path)
