// Shows messages. Text of models and users only ever becomes text nodes.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`\n]*$/;

// Splits a text into prose and fenced code. Code that has not ended yet is code too.
export function segments(text) {
  const found = [];
  let lines = [];
  let fence = null;
  const end = (kind, extra) => {
    const content = lines.join("\n");
    if (content.trim() || kind === "code") {
      found.push({ kind, text: kind === "code" ? content : content.replace(/^\n+|\s+$/g, ""), ...extra });
    }
    lines = [];
  };
  for (const line of text.split("\n")) {
    const mark = FENCE.exec(line);
    if (fence && mark && !mark[2] && mark[1][0] === fence.mark[0] && mark[1].length >= fence.mark.length) {
      end("code", { language: fence.language });
      fence = null;
    } else if (!fence && mark) {
      end("prose");
      fence = { mark: mark[1], language: mark[2] };
    } else {
      lines.push(line);
    }
  }
  end(fence ? "code" : "prose", fence ? { language: fence.language } : {});
  return found;
}

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export function copyButton(text) {
  const button = element("button", { type: "button", className: "quiet small", textContent: "Copy" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Could not copy";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

function made(segment) {
  if (segment.kind === "prose") {
    return element("div", { className: "prose" });
  }
  const code = element("code");
  const label = element("span", { textContent: segment.language || "code" });
  const caption = element("figcaption", {}, label, copyButton(() => code.textContent));
  const figure = element("figure", {}, caption, element("pre", { tabIndex: 0 }, code));
  return figure;
}

// Updates the body of a message, and keeps the parts that have not changed, with their focus and selection.
export function show(body, text) {
  const parts = segments(text);
  parts.forEach((segment, index) => {
    let child = body.children[index];
    if (child?.dataset.kind !== segment.kind) {
      const fresh = made(segment);
      fresh.dataset.kind = segment.kind;
      child ? child.replaceWith(fresh) : body.append(fresh);
      child = fresh;
    }
    const target = segment.kind === "code" ? child.querySelector("code") : child;
    if (target.textContent !== segment.text) {
      target.textContent = segment.text;
    }
  });
  while (body.children.length > parts.length) {
    body.lastChild.remove();
  }
}
