// What a screen has just asked, as curl, as Python and as the answer's JSON.

import { hasKey } from "./api.js";
import { button, h } from "./dom.js";

const LONGEST = 20_000; // characters of an answer that are shown
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const address = (path) => new URL(path, document.baseURI).href;

function curl({ path, body }) {
  const key = hasKey() ? ` -H "Authorization: Bearer $TRIFOLD_KEY"` : "";
  const flag = body.stream ? "curl -N" : "curl";
  return `${flag} ${address(path)}${key} \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted(JSON.stringify(body))}`;
}

function literal(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}

function python({ path, body }) {
  const imports = hasKey() ? "import os\n\nimport httpx\n" : "import httpx\n";
  const key = hasKey() ? `headers = {"Authorization": f"Bearer {os.environ['TRIFOLD_KEY']}"}\n` : "";
  const rest = hasKey() ? ", headers=headers" : "";
  const asked = `"${address(path)}", json=body${rest}, timeout=60`;
  const act = body.stream
    ? `with httpx.stream("POST", ${asked}) as response:\n    for line in response.iter_lines():\n        print(line)`
    : `print(httpx.post(${asked}).json())`;
  return `${imports}\n${key}body = ${literal(body)}\n${act}`;
}

function json({ answer }) {
  const rows = /\[\s+(-?[\d.e+-]+(?:,\s+-?[\d.e+-]+)*)\s+\]/g; // lists of numbers on one line each
  const text = JSON.stringify(answer, null, 2).replace(rows, (_, row) => `[${row.replace(/\s+/g, " ")}]`);
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… ${text.length - LONGEST} characters more` : text;
}

const FORMS = { curl, Python: python, JSON: json };

// A panel at the end of a screen; `show` gives it the newest calls.
export function callPanel() {
  const pre = h("pre", { tabindex: 0, role: "region", "aria-label": "The request or its answer" });
  const which = h("div", { class: "choices", role: "group", "aria-label": "Request" });
  let calls = [];
  let form = "curl";
  let number = 0;

  const copy = button("Copy", async () => {
    await navigator.clipboard?.writeText(pre.textContent);
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  const forms = h(
    "div",
    { class: "choices", role: "group", "aria-label": "Form" },
    Object.keys(FORMS).map((name) => button(name, () => draw({ form: name }), { "aria-pressed": "false" })),
  );

  function draw(change = {}) {
    form = change.form ?? form;
    number = Math.min(change.number ?? number, calls.length - 1);
    for (const each of forms.children) each.setAttribute("aria-pressed", String(each.textContent === form));
    which.replaceChildren(
      ...(calls.length < 2 ? [] : calls).map((call, index) =>
        button(`/${call.path}`, () => draw({ number: index }), { "aria-pressed": String(index === number) }),
      ),
    );
    if (element.open && calls.length) pre.textContent = FORMS[form](calls[number]);
  }

  const element = h(
    "details",
    { class: "call", ontoggle: () => draw() },
    h("summary", {}, "The same from your own program"),
    h("div", { class: "row" }, forms, which, copy),
    pre,
  );
  const show = (...newest) => {
    calls = newest;
    number = Math.max(0, number);
    draw();
  };
  return { element, show };
}
