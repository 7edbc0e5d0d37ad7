// What is said once to who listens: a whole answer, of which nobody could hear the tokens as they come.

import { h } from "./dom.js";

const HEARD_MS = 1000;

export function speaker() {
  const element = h("p", { class: "heard", "aria-live": "polite" });
  let timer;
  function say(text) {
    clearTimeout(timer);
    element.textContent = text;
    // When it has been taken up it would be a second text to read or copy.
    if (text) timer = setTimeout(() => (element.textContent = ""), HEARD_MS);
  }
  return { element, say };
}
