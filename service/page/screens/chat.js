// A conversation with a model that has a chat template.

import { newCall } from "../api.js";
import { button, field, h, samples, textarea } from "../dom.js";
import { speaker } from "../heard.js";
import { numberIn } from "../numbers.js";
import { isTooLong, makeScreen } from "../screen.js";
import { stopButton } from "../stop.js";
import { ENDED_AT_ONCE, run, speed, tokenText } from "../tokens.js";

const MOST = 160; // tokens of an answer, if nothing else is chosen
const TOO_LONG = "This conversation is too long for this model; begin a new one";
const FIRST = ["Write a story about a dog and a ball.", "Write a story about a girl who finds a key."];

export function open(models) {
  const log = h("div", { class: "log", role: "log", "aria-label": "Conversation" });
  const said = textarea(FIRST[0], 2, () => {});
  const most = h("input", { type: "number", value: MOST, min: 1 });
  const send = button("Send", () => wish(), { class: "primary" });
  const stop = stopButton(said);
  const others = h("div", { class: "others", "aria-live": "polite" });
  const heard = speaker();
  let messages = [];
  let frame;
  let isWaiting = false; // for the first character

  // What is said before an answer has begun waits in its field.
  function wish() {
    if (said.value.trim() && !isWaiting) frame.wish(0);
  }

  function build(made) {
    frame = made;
    frame.onmodel = () => {
      stop.cancel();
      isWaiting = false;
      messages = [];
      others.replaceChildren();
      heard.say("");
      log.replaceChildren(h("p", { class: "soft" }, "Nothing has been said yet."));
    };
    said.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return; // Enter chooses among characters, too
      event.preventDefault();
      wish();
    });
    const again = button("New conversation", () => {
      frame.empty();
      frame.onmodel();
    });
    const row = h("div", { class: "row" }, send, stop.element, again, field("Most tokens", most, { class: "field picker small" }));
    frame.fieldOf = (name) => ({ messages: said, max_tokens: most })[name];
    return [log, others, heard.element, field("Message", said), samples(FIRST, said), row, frame.trouble];
  }

  async function ask(signal) {
    const content = said.value.trim();
    if (!content) return;
    const max_tokens = numberIn(most, MOST);
    const [all, writing, message] = [messages, stop.begin(), { role: "user", content }]; // a new conversation has others
    if (!all.length) log.replaceChildren();
    all.push(message);
    said.value = "";
    log.querySelector(".shown")?.classList.remove("shown");
    others.replaceChildren();
    const answer = tokenText(others);
    const bubbles = [
      h("p", { class: "bubble user", dir: "auto" }, content),
      h("div", { class: "bubble model", "aria-live": "off" }, answer.text), // token by token nobody could listen to it
    ];
    log.append(...bubbles);
    log.scrollTo({ top: log.scrollHeight });
    isWaiting = true;
    const body = { model: frame.model.id, messages: [...all], max_tokens, logprobs: 6, stream: true };
    const call = newCall("generate", body);
    const onbegin = () => {
      if (!writing.isNewest()) return;
      isWaiting = false;
      frame.say("Writing …");
    };
    let hasEnded = false;
    try {
      const done = await run(call, answer, AbortSignal.any([signal, writing.signal]), { box: log, onbegin });
      hasEnded = true; // maybe without a word, which is an answer too: a template may ask that roles alternate
      frame.told("", call);
      frame.say(answer.value() ? speed(done) : ENDED_AT_ONCE);
    } catch (error) {
      if (!answer.value()) {
        all.splice(all.indexOf(message), 1); // it was not answered, and can be said again in other words
        bubbles.forEach((each) => each.remove());
        if (!signal.aborted && all === messages) said.value = [content, said.value].filter(Boolean).join("\n");
        if (all.length && error.param === "messages" && isTooLong(error.message)) {
          // The message may be short: it is all that was said before.
          Object.assign(error, { message: TOO_LONG, param: null, isFinal: true });
        }
      } else error.isFinal = true; // answered in part: to be sent again the message would have to be written again
      if (!writing.signal.aborted) throw error;
      if (!writing.isNewest()) return; // by another conversation, of which nothing was stopped
      frame.say("Stopped.");
      frame.show(call);
    } finally {
      if (writing.isNewest()) isWaiting = false;
      writing.end();
      heard.say(answer.value());
      if (hasEnded || answer.value()) all.push({ role: "assistant", content: answer.value() });
    }
  }

  return makeScreen("Chat", models, { build, ask, auto: false, keeps: true });
}
