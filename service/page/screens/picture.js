// A picture to be classified: dropped, chosen, pasted, or the drawing of trousers that is there at first.

import { h } from "../dom.js";

const TROUSERS =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAABwAAAAcCAAAAABXZoBIAAAAKElEQVR42mNgwAMYYYwtSII+UJoJn85RSdpLIkcKnEM1O31GAx4dAACn5ALq/5sKnQAAAABJRU5ErkJggg==";

export function picture(onchange) {
  let data = TROUSERS;
  const image = h("img", { src: data, alt: "The picture that is classified", width: 140, height: 140 });
  const file = h("input", { type: "file", accept: "image/*", id: "picture-file", onchange: () => take(file.files[0]) });

  const problem = h("p", { class: "problem", role: "alert", hidden: true }, "This file is no picture.");

  function take(chosen) {
    if (!chosen) return;
    problem.hidden = chosen.type.startsWith("image/");
    if (!problem.hidden) return;
    const reader = new FileReader();
    reader.onload = () => {
      data = reader.result;
      image.src = data;
      onchange();
    };
    reader.readAsDataURL(chosen);
  }

  const element = h(
    "div",
    {
      class: "drop",
      ondragover: (event) => {
        event.preventDefault();
        element.classList.add("over");
      },
      ondragleave: () => element.classList.remove("over"),
      ondrop: (event) => {
        event.preventDefault();
        element.classList.remove("over");
        take(event.dataTransfer.files[0]);
      },
    },
    image,
    h("div", {}, h("label", { for: "picture-file" }, "Drop a picture here, paste one, or choose one"), file, problem),
  );
  document.addEventListener("paste", (event) => element.isConnected && take(event.clipboardData.files[0]));
  return { element, data: () => data };
}
