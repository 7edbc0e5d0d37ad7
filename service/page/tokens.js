// Tokens as they stream in, each with the alternatives that stood at its place.

import { answered, Refused, stream } from "./api.js";
import { bars, button, characters, counted, h, roving } from "./dom.js";

// A text that grows token by token; `others` shows what else could have stood at a token's place.
export function tokenText(others = h("div", { class: "others", "aria-live": "polite" })) {
  const text = h("p", { class: "reading stream", dir: "auto" });
  let written = "";
  let waiting = [];

  function add(event) {
    const logprobs = [...waiting, ...(event.logprobs ?? [])];
    waiting = event.text ? [] : logprobs; // tokens that are half a character say nothing until the other half comes
    if (!event.text) return;
    const first = logprobs[0];
    const share = first ? Math.exp(first.logprob) : 1;
    const show = () => {
      text.querySelector(".shown")?.classList.remove("shown");
      token.classList.add("shown");
      others.replaceChildren(button("Close", close, { class: "chip close" }), ...logprobs.map(alternatives));
    };
    const bringUp = () => token.scrollIntoView({ block: "nearest" }); // from behind its alternatives, on a telephone
    const own = withBreaks(event.text);
    const tabindex = text.querySelector(".token") ? -1 : 0; // the others are reached from the first by arrows
    const act = { role: "button", tabindex, "aria-label": shown(event.text), "--doubt": 1 - share, onmouseenter: show, onfocus: show, onclick: bringUp };
    const token = logprobs.length ? h("span", { class: "token", ...act }, own) : h("span", {}, own);
    text.append(token);
    written += event.text;
  }

  roving(text, ".token");

  // On a telephone they lie over the text, and are in the way of what one wants to read.
  function close() {
    const token = text.querySelector(".shown");
    if (others.contains(document.activeElement)) token?.focus(); // a button that is taken away loses it
    token?.classList.remove("shown");
    others.replaceChildren();
  }
  text.addEventListener("keydown", ({ key }) => key === "Escape" && close());

  const clear = () => {
    written = "";
    waiting = [];
    text.replaceChildren();
    others.replaceChildren();
  };
  return { text, others, add, clear, value: () => written };
}

// A text whose line breaks are seen, by a sign that is nobody's who copies it.
const withBreaks = (text) =>
  text.split("\n").flatMap((line, index) => (index ? [h("span", { class: "break" }), "\n", line] : [line]));

function alternatives({ text, logprob, top }) {
  const rows = top.map((each) => ({ name: shown(each.text), share: Math.exp(each.logprob) }));
  if (!top.some((each) => each.logprob === logprob)) rows.push({ name: shown(text), share: Math.exp(logprob) });
  return bars(rows, { label: `Alternatives to ${shown(text)}` });
}

const LINE = 40; // pixels

const numberOf = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

// A token's text in signs that are seen; characters that are never drawn, such as joiners and control characters, are named.
export function shown(text) {
  const seen = text.replace(/^[^\S\ufeff]+|[^\S\ufeff]+$/gu, ""); // a byte order mark is no space
  if (/^[\p{DI}\p{Cc}]+$/u.test(seen)) return characters(seen).map(numberOf).join(" ");
  return text.trim() || text.includes("\n") ? text.replaceAll("\n", "⏎") : text ? "␣" : "∅";
}

// Reads a stream of one choice into a text until it ends or is stopped; its call has what came, however it ends. Whoever
// sees the end of the box that the text is in goes on seeing it.
export async function run(call, into, signal, { box = into.text, onbegin } = {}) {
  const events = [];
  let usage = null;
  let reason = null;
  let first = null;
  let hasBegun = false;
  try {
    for await (const event of stream(call, signal)) {
      if (event.usage) usage = event.usage;
      else {
        first ??= performance.now() - call.started;
        const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < LINE;
        into.add(event);
        if (!hasBegun && into.value()) {
          hasBegun = true; // not before: the first token may be a part of a character, of which there is nothing to see
          onbegin?.();
        }
        if (isAtEnd) box.scrollTo({ top: box.scrollHeight });
        events.push(event);
        reason = event.finish_reason ?? reason;
      }
      answered(call, { events, usage });
    }
    if (!usage) throw new Refused("The answer broke off before its end");
  } catch (error) {
    throw Object.assign(error, { call });
  }
  return { first, reason, usage, seconds: call.seconds };
}

export const ENDED_AT_ONCE = "The model ended at once.";

export function speed({ first, usage, seconds, reason }) {
  const tokens = usage.completion_tokens;
  if (!tokens) return ENDED_AT_ONCE;
  const rest = seconds - first / 1000;
  const rate = tokens > 1 && rest > 0 ? `, ${Math.round((tokens - 1) / rest)} tokens/s` : "";
  return `${counted(tokens, "token")}, the first after ${Math.round(first)} ms${rate}${reason === "length" ? ", cut at the most tokens" : ""}`;
}
