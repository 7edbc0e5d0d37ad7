// A prompt, continued token by token, by one setting or by two side by side.

import { newCall } from "../api.js";
import { button, field, h, samples, textarea } from "../dom.js";
import { speaker } from "../heard.js";
import { numberIn } from "../numbers.js";
import { makeScreen } from "../screen.js";
import { stopButton } from "../stop.js";
import { run, speed, tokenText } from "../tokens.js";

const PROMPTS = [
  "Write a story about a dog and a ball.\n",
  "Once upon a time, there was a small boat that",
  "Lily opened the box and",
];
const ALTERNATIVES = 6;

export function open(models) {
  const prompt = textarea(PROMPTS[0], 3, () => {});
  const start = button("Generate", () => frame.wish(0), { class: "primary" });
  const stop = stopButton(start);
  const two = h("input", {
    type: "checkbox",
    id: "two-settings",
    onchange: () => (second.element.hidden = !two.checked),
    oninput: (event) => event.stopPropagation(), // it makes no answer older
  });
  const first = setting("A", { temperature: 0.8, seed: 1 });
  const second = setting("B", { temperature: 0, seed: 1 });
  second.element.hidden = true;
  const heard = speaker();
  let frame;

  function build(made) {
    frame = made;
    frame.onmodel = () => {
      stop.cancel();
      [first, second].forEach((each) => each.clear());
    };
    frame.fieldOf = (name, of) => (name === "prompt" ? prompt : (of === second.name ? second : first).inputs[name]);
    prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) frame.wish(0);
    });
    return [
      field("Prompt", prompt),
      samples(PROMPTS, prompt),
      h("div", { class: "row" }, start, stop.element, h("label", { class: "check" }, two, "Compare two settings")),
      frame.trouble,
      heard.element,
      h("div", { class: "columns even" }, first.element, second.element),
    ];
  }

  async function ask(signal) {
    const used = two.checked ? [first, second] : [first];
    const calls = used.map((each) => newCall("generate", each.body(frame.model.id, prompt.value), two.checked ? each.name : null));
    if (!two.checked) second.clear(); // what it wrote was of another prompt
    const writing = stop.begin();
    const ended = AbortSignal.any([signal, writing.signal]);
    const onbegin = () => frame.say("Writing …");
    try {
      await Promise.all(used.map((each, index) => each.write(calls[index], ended, onbegin)));
      frame.told("", ...calls);
    } catch (error) {
      const wasStopped = writing.signal.aborted;
      writing.abort(); // where one setting is refused the other writes for nobody
      if (!wasStopped) throw error;
      if (!writing.isNewest()) return; // by the choice of another model, of which nothing was stopped
      frame.say("Stopped.");
      frame.show(...calls);
    } finally {
      writing.end();
      if (!signal.aborted) heard.say(spoken());
    }
  }

  function spoken() {
    const written = [first, second].filter((each) => each.value());
    return written.map((each) => (two.checked ? `Setting ${each.name}: ${each.value()}` : each.value())).join("\n");
  }

  return makeScreen("Generate", models, { build, ask, auto: false });
}

const FIELDS = [
  ["temperature", "Temperature", { min: 0, max: 10, step: 0.1 }],
  ["top_p", "Top p", { min: 0, max: 1, step: 0.01, "data-above": true }],
  ["top_k", "Top k", { min: 0, step: 1 }],
  ["seed", "Seed", { min: 0, max: Number.MAX_SAFE_INTEGER, step: 1 }],
  ["max_tokens", "Most tokens", { min: 1, step: 1 }],
];
const DEFAULTS = { temperature: 0.8, top_p: 1, top_k: 0, seed: 1, max_tokens: 120 };

// One setting: its numbers, and what was written by it.
function setting(name, values) {
  const output = tokenText();
  const told = h("p", { class: "soft" });
  const initial = { ...DEFAULTS, ...values };
  const inputs = Object.fromEntries(
    FIELDS.map(([id, , bounds]) => [id, h("input", { type: "number", value: initial[id], ...bounds })]),
  );
  const fields = FIELDS.map(([id, label]) => field(label, inputs[id], { class: "field small" }));
  const hint = h("p", { class: "soft" }, "Tap a token or hover over it, or go there by Tab and the arrows, for what could have stood there.");
  const element = h(
    "section",
    { class: "panel", "aria-label": `Setting ${name}` },
    h("h2", {}, `Setting ${name}`),
    h("div", { class: "fields" }, fields),
    output.text,
    told,
    hint,
    output.others,
  );

  function clear() {
    output.clear();
    told.textContent = "";
  }

  // The request with the setting's numbers. One that was emptied is there again, as it is what is asked for.
  function body(model, prompt) {
    const numbers = {};
    for (const [id, input] of Object.entries(inputs)) {
      numbers[id] = numberIn(input, initial[id]);
    }
    return { model, prompt, ...numbers, logprobs: ALTERNATIVES, stream: true };
  }

  async function write(call, signal, onbegin) {
    clear();
    told.textContent = speed(await run(call, output, signal, { onbegin }));
  }

  return { name, element, inputs, body, write, clear, value: output.value };
}
