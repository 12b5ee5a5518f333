// Keeps a page fresh: upon each beat it is fetched anew, and its content is replaced, unless somebody works in it.
const main = document.querySelector("main[data-live]");

function isBusy() {
  const active = document.activeElement;
  const typing = active && main.contains(active) && active.matches("input, select, textarea, button, summary");
  return typing || main.querySelector("details[open]") !== null || String(getSelection()) !== "" || document.hidden;
}

async function refresh() {
  if (isBusy()) return;
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok || answer.redirected || isBusy()) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
  const done = main.querySelector(".done");
  if (fresh) main.replaceChildren(...(done ? [done] : []), ...[...fresh.childNodes].filter((node) => !node.classList?.contains("done")));
}

if (main) {
  const beats = new EventSource("/mondat/live");
  beats.addEventListener("message", () => refresh().catch(() => {}));
}
