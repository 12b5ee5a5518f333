"""MONDAT in a real browser: every page opens, every action acts, and nothing of a client's becomes a script."""

import json
import re
import urllib.request
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Page, expect

HTML = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
PAGES = (
    "", "/transactions", "/transactions?status=success", "/exceptions", "/nodes", "/pipelines", "/pipelines/payment",
    "/webhooks", "/transfers", "/keys", "/events", "/audit", "?scale=2h", "?scale=24h",
)  # fmt: skip


def ask(dev: dict[str, Any], method: str, path: str, document: Any) -> Any:
    request = urllib.request.Request(
        dev["httpUrl"] + path, json.dumps(document).encode(), {"content-type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def started(dev: dict[str, Any], name: str, **more: Any) -> Any:
    return ask(dev, "POST", "/v1/transactions", {"transactionType": name, **more})


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_opens_and_says_what_it_is(dev: dict[str, Any], page: Page, path: str) -> None:
    answer = await page.goto(f"{dev['httpUrl']}/mondat{path}")
    assert answer is not None and answer.status == 200
    await expect(page.locator("h1")).not_to_be_empty()
    assert await page.locator("main table, main form, main section, main details").count() > 0


async def test_a_waiting_transaction_is_found_explained_and_freed(dev: dict[str, Any], page: Page) -> None:
    name = f"order-{uuid4()}"
    started(dev, "payment", externalId=name, input={"amount": "25.00"})
    await page.goto(f"{dev['httpUrl']}/mondat")
    await page.get_by_label("txId or externalId").fill(name)
    await page.get_by_role("button", name="Find").click()
    told = page.get_by_label("Why it is here")
    await expect(told).to_contain_text('Step approval waits for the switch "approved".')
    await expect(told).to_contain_text("It goes on when somebody sets the switch")
    await page.get_by_label("Reason, for the audit log").fill("the customer called")
    await page.get_by_role("button", name="Set the switch").click()
    await expect(page.locator(".done")).to_have_text("set-switch: WOKEN")
    # The page keeps itself fresh.
    await expect(told).to_contain_text("It ended success", timeout=10_000)
    await page.goto(f"{dev['httpUrl']}/mondat/audit")
    await expect(page.locator("tbody tr").first).to_contain_text("the customer called")


async def test_a_transaction_is_cancelled_and_run_again(dev: dict[str, Any], page: Page) -> None:
    tx_id = started(dev, "payment")["txId"]
    await page.goto(f"{dev['httpUrl']}/mondat/transactions/{tx_id}")
    await page.get_by_label("Reason, for the audit log").fill("a test")
    await page.get_by_role("button", name="Cancel it").click()
    await expect(page.get_by_label("Why it is here")).to_contain_text("It ended cancelled", timeout=10_000)
    await page.get_by_label("Reason, for the audit log").fill("again")
    await page.get_by_role("button", name="Run it again").click()
    await expect(page.locator(".done")).to_have_text("rerun: started")
    assert tx_id not in page.url


async def test_a_bulk_action_is_counted_first(dev: dict[str, Any], page: Page) -> None:
    owner_type = "payment"
    for _ in range(3):
        started(dev, owner_type)
    await page.goto(f"{dev['httpUrl']}/mondat/transactions?status=waiting&type={owner_type}")
    await page.get_by_text("Do something with all").click()
    await page.get_by_label("Reason").fill("closing")
    await page.get_by_role("button", name="Count them first").click()
    await expect(page.locator("main")).to_contain_text(re.compile(r"cancel would be done to \d+ transactions"))
    await page.get_by_role("button", name="Do it").click()
    await expect(page.locator("main")).to_contain_text("OK:")


async def test_what_clients_send_is_shown_and_never_run(dev: dict[str, Any], page: Page) -> None:
    name = f"evil-{uuid4()}"
    tx_id = started(dev, "hello", externalId=name + HTML[:60], input={"name": HTML}, wait=5)["txId"]
    for path in (f"/transactions/{tx_id}", "/transactions"):
        await page.goto(f"{dev['httpUrl']}/mondat{path}")
        assert await page.title() != "broken"
    await page.goto(f"{dev['httpUrl']}/mondat/transactions/{tx_id}")
    await page.locator("summary").first.click()
    await expect(page.locator("pre").first).to_be_visible()
    assert await page.locator("main img").count() == 0
    assert await page.title() != "broken"


async def test_workers_are_set_and_the_node_says_so(dev: dict[str, Any], page: Page) -> None:
    await page.goto(f"{dev['httpUrl']}/mondat/nodes")
    group = page.locator("#checks")
    await group.get_by_label("Workers").fill("7")
    await group.get_by_role("button", name="Set").click()
    await expect(page.locator(".done")).to_have_text("set-workers: 1 of 1 nodes did it")
    await expect(page.locator("#checks tbody tr").first).to_contain_text("7")


async def test_it_works_with_the_keyboard_alone(dev: dict[str, Any], page: Page) -> None:
    await page.goto(f"{dev['httpUrl']}/mondat")
    await page.keyboard.press("Tab")
    await expect(page.get_by_text("To the content")).to_be_focused()
    for _ in range(3):
        await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Transactions")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("Transactions")


async def test_on_a_phone_nothing_runs_over_the_edge(dev: dict[str, Any], page: Page) -> None:
    await page.set_viewport_size({"width": 390, "height": 800})
    for path in ("", "/transactions", "/nodes"):
        await page.goto(f"{dev['httpUrl']}/mondat{path}")
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1"), path
