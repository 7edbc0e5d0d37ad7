// The button that stops what is being written.

import { button } from "./dom.js";

// `focused` gets the keyboard's focus from the button when there is nothing to stop any more.
export function stopButton(focused) {
  let writing = null;
  const element = button("Stop", () => writing?.abort(), { disabled: true });

  function end() {
    writing = null;
    if (document.activeElement === element) focused.focus(); // a button that is disabled loses it
    element.disabled = true;
  }

  // Returns what a writing is stopped by; it is another's turn if another has begun, or was ended by a screen.
  function begin() {
    const own = new AbortController();
    writing = own;
    element.disabled = false;
    const isNewest = () => writing === own;
    return {
      signal: own.signal,
      isNewest,
      abort: () => own.abort(),
      end: () => isNewest() && end(),
    };
  }

  // Ends what is written, as of a model that is not asked any more.
  function cancel() {
    writing?.abort();
    end();
  }

  return { element, begin, cancel };
}
