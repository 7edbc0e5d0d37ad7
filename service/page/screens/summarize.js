// A summary of a text, as it is written.

import { newCall } from "../api.js";
import { button, copyButton, field, h, textarea } from "../dom.js";
import { speaker } from "../heard.js";
import { makeScreen } from "../screen.js";
import { stopButton } from "../stop.js";
import { run, speed, tokenText } from "../tokens.js";

const TEXT =
  "The lighthouse on the northern cape was built in 1871, after three ships had been lost on the rocks in one winter. " +
  "Its first keeper lived there with his family for thirty years, and carried the oil up 148 steps every evening. " +
  "Since 1984 the lamp has been lit by a computer in the harbour office, twelve kilometres away. " +
  "The keeper’s house is now a small museum, which is open from May to September and has about nine thousand visitors a year.";

export function open(models) {
  const text = textarea(TEXT, 10, () => {});
  const start = button("Summarize", () => frame.wish(0), { class: "primary" });
  const stop = stopButton(start);
  const cut = h("input", { type: "checkbox", id: "cut-summarized", checked: true });
  const summary = tokenText();
  const told = h("p", { class: "soft" });
  const heard = speaker();
  const copy = copyButton(summary.text);
  let frame;

  function build(made) {
    frame = made;
    frame.fieldOf = (name) => (name === "input" ? text : null);
    frame.onmodel = () => {
      stop.cancel();
      clear();
    };
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) frame.wish(0);
    });
    clear();
    return h(
      "div",
      { class: "columns even" },
      h(
        "div",
        { class: "panel" },
        field("Text", text),
        h("div", { class: "row" }, start, stop.element, h("label", { class: "check" }, cut, "Leave out the end of a text that is too long")),
        frame.trouble,
        heard.element,
      ),
      h("div", { class: "panel" }, h("h2", {}, "Summary"), summary.text, told, h("div", { class: "row" }, copy)),
    );
  }

  function clear() {
    summary.clear();
    told.textContent = "";
    copy.hidden = true;
  }

  async function ask(signal) {
    if (!text.value.trim()) {
      frame.empty();
      return clear();
    }
    const writing = stop.begin();
    const call = newCall("summarize", { model: frame.model.id, input: text.value, truncate: cut.checked, stream: true });
    clear();
    const onbegin = () => frame.say("Writing …");
    try {
      told.textContent = speed(await run(call, summary, AbortSignal.any([signal, writing.signal]), { onbegin }));
      frame.told("", call);
    } catch (error) {
      if (!writing.signal.aborted) throw error;
      if (!writing.isNewest()) return; // by the choice of another model, of which nothing was stopped
      frame.say("Stopped.");
      frame.show(call);
    } finally {
      copy.hidden = !summary.value();
      writing.end();
      if (!signal.aborted) heard.say(summary.value());
    }
  }

  return makeScreen("Summarize", models, { build, ask, auto: false });
}
