// A request as text that one can run: curl, Python with httpx, Python with OpenAI's client where its protocol has the route.

import { hasKey } from "./api.js";

const LONGEST = 20_000; // characters of an answer that are shown
const LONGEST_ARGUMENT = 120_000; // bytes; Linux takes a few more
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const address = (path) => new URL(path, document.baseURI).href;

// What the code asks with a key: it stands in the environment, and in no file or history of a shell. The service refuses to
// start where it finds a variable of its own that it does not know, so this is none of those.
const KEY = "API_KEY";
const note = () => (hasKey() ? `# export ${KEY}='your key'\n` : "");

// A body that is too long for a command's argument is a file's, of which the beginning is shown.
const beginning = (body) =>
  JSON.stringify(body, (_, value) => (typeof value === "string" && value.length > 60 ? `${value.slice(0, 60)}…` : value)).slice(0, 500);
// The text of that file; nothing where there is no need of one.
function fileOf({ body }) {
  const text = JSON.stringify(body);
  return new TextEncoder().encode(text).length > LONGEST_ARGUMENT ? text : "";
}

function file(body) {
  const text = fileOf({ body });
  return text && `# body.json, of ${text.length} characters, which “Save body.json” gives: ${beginning(body)}\n`;
}

function curl({ path, body }) {
  const key = hasKey() ? ` -H "Authorization: Bearer $${KEY}"` : "";
  const flag = body.stream ? "curl -N" : "curl";
  const about = file(body);
  const sent = about ? "--data-binary @body.json" : `-d ${quoted(JSON.stringify(body))}`;
  return `${note()}${about}${flag} ${address(path)}${key} \\\n  -H 'Content-Type: application/json' \\\n  ${sent}`;
}

// A value as Python has it. JSON's strings are Python's, too.
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
  const about = file(body);
  const standard = `${about && "import json\n"}${hasKey() ? "import os\n" : ""}`;
  const imports = `${note()}${about}${standard}${standard && "\n"}import httpx\n`;
  const given = about ? 'json.load(open("body.json", encoding="utf-8"))' : literal(body);
  const key = hasKey() ? `headers = {"Authorization": f"Bearer {os.environ['${KEY}']}"}\n` : "";
  const rest = hasKey() ? ", headers=headers" : "";
  const asked = `"${address(path)}", json=body${rest}, timeout=60`;
  const act = body.stream
    ? `with httpx.stream("POST", ${asked}) as response:\n    for line in response.iter_lines():\n        print(line)`
    : `print(httpx.post(${asked}).json())`;
  return `${imports}\n${key}body = ${given}\n${act}`;
}

const EACH_VECTOR = "for each in answer.data:\n    print(each.embedding)";
const EACH_PIECE = (text) => `for chunk in answer:\n    print(${text}, end="", flush=True)`;

// The method of OpenAI's client that asks the same, its arguments, and what prints the answer; null where there is none.
function asOpenAI({ path, body }) {
  if (path === "embed" && !body.windows) return { method: "embeddings", given: body, print: EACH_VECTOR };
  if (path !== "generate") return null;
  const { top_k, logprobs, ...given } = body;
  const print = EACH_PIECE(body.messages ? 'chunk.choices[0].delta.content or ""' : "chunk.choices[0].text");
  const extra_body = top_k === undefined ? {} : { extra_body: { top_k } }; // which OpenAI has not
  return body.messages
    ? { method: "chat.completions", given: { ...given, logprobs: true, top_logprobs: logprobs, ...extra_body }, print }
    : { method: "completions", given: { ...given, logprobs, ...extra_body }, print };
}

function openai(call) {
  const asked = asOpenAI(call);
  const imports = `${note()}${hasKey() ? "import os\n\n" : ""}from openai import OpenAI\n`;
  const key = hasKey() ? `os.environ["${KEY}"]` : '"none"';
  const given = Object.entries(asked.given).map(([name, value]) => `    ${name}=${literal(value)},\n`);
  const client = `client = OpenAI(base_url="${address("v1")}", api_key=${key})\n`;
  return `${imports}\n${client}answer = client.${asked.method}.create(\n${given.join("")})\n${asked.print}`;
}

function json({ answer }) {
  // Lists of numbers, each to be on one line. A line ends nowhere in a string, whose brackets stay as they are.
  const rows = /\[\n\s*(-?\d[\d.e+-]*(?:,\s+-?\d[\d.e+-]*)*)\s+\]/g;
  const text = JSON.stringify(answer, null, 2).replace(rows, (_, row) => `[${row.replace(/\s+/g, " ")}]`);
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… ${text.length - LONGEST} characters more` : text;
}

const OPENAI = "OpenAI’s client";
// The forms by their names, and whether a call has one: not everything is answered.
export const FORMS = { curl, Python: python, [OPENAI]: openai, JSON: json };
export const readFile = (call, form) => (form === "curl" || form === "Python" ? fileOf(call) : "");
export const hasForm = (call, form) => (form === OPENAI ? asOpenAI(call) : form === "JSON" ? call.answer : call) !== null;
