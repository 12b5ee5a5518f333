// The page to try the routes at: made from /openapi.json, with nothing from anywhere else.

const made = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

const description = await (await fetch("/openapi.json")).json();
const key = document.getElementById("key");
const byTag = new Map();

for (const [path, operations] of Object.entries(description.paths)) {
  for (const [method, operation] of Object.entries(operations)) {
    const tag = operation.tags[0];
    byTag.set(tag, [...(byTag.get(tag) ?? []), { path, method: method.toUpperCase(), operation }]);
  }
}
for (const [tag, routes] of byTag) {
  document.getElementById("routes").append(made("h2", { textContent: tag }), ...routes.map(shown));
}

function shown({ path, method, operation }) {
  const fields = operation.parameters.map((parameter) => {
    const input = made("input", { name: parameter.name, required: parameter.required });
    return { parameter, input };
  });
  const body = operation.requestBody && made("textarea", { value: example(operation) });
  const said = made("pre", { hidden: true });
  const send = made("button", { type: "submit", textContent: "Send" });
  const stop = made("button", { type: "button", textContent: "Stop", hidden: true });
  const form = made("form", { className: "tried" });
  if (operation.description) form.append(made("p", { textContent: operation.description }));
  for (const { parameter, input } of fields) {
    form.append(made("label", {}, `${parameter.name} (${parameter.in})`, input,
      made("small", { textContent: parameter.description ?? "" })));
  }
  if (body) form.append(made("label", {}, "body", body));
  form.append(send, stop, said);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tryIt({ path, method, fields, body, said, stop });
  });
  return made("details", {},
    made("summary", {}, made("b", { textContent: method }), made("code", { textContent: path }),
      made("span", { textContent: operation.summary })),
    form);
}

async function tryIt({ path, method, fields, body, said, stop }) {
  const headers = {};
  const query = new URLSearchParams();
  let url = path;
  for (const { parameter, input } of fields) {
    if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (input.value === "") continue;
    else if (parameter.in === "query") query.set(parameter.name, input.value);
    else headers[parameter.name] = input.value;
  }
  if (key.value) headers.Authorization = `Bearer ${key.value}`;
  if (body) headers["Content-Type"] = "application/json";
  if (query.size) url += `?${query}`;
  const ending = new AbortController();
  stop.hidden = false;
  stop.onclick = () => ending.abort();
  said.hidden = false;
  said.textContent = `${method} ${url}\n\n…`;
  try {
    const answer = await fetch(url, { method, headers, body: body?.value, signal: ending.signal });
    const head = [...answer.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
    said.textContent = `${method} ${url}\n\n${answer.status} ${answer.statusText}\n${head}\n\n`;
    if (answer.headers.get("content-type")?.includes("json")) {
      said.textContent += JSON.stringify(await answer.json(), null, 2);
    } else {
      for await (const piece of pieces(answer.body)) said.textContent += piece;
    }
  } catch (error) {
    said.textContent += ending.signal.aborted ? "\n(stopped)" : `\n${error}`;
  }
  stop.hidden = true;
}

async function* pieces(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
}

function example(operation) {
  const schema = resolved(operation.requestBody.content["application/json"].schema);
  if (schema.examples) return JSON.stringify(schema.examples[0], null, 2);
  const required = Object.fromEntries((schema.required ?? []).map((name) => [name, sample(schema.properties[name])]));
  return JSON.stringify(required, null, 2);
}

function sample(schema) {
  const known = resolved(schema);
  if (known.examples) return known.examples[0];
  return { string: "", array: [], object: {}, boolean: false, integer: 0, number: 0 }[known.type] ?? null;
}

function resolved(schema) {
  return schema.$ref ? description.components.schemas[schema.$ref.split("/").pop()] : schema;
}
