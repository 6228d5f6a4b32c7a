// The chat page: connects the elements of index.html with chats, server and rendering.

import { Chats, loadSettings, saveSettings, titleOf } from "./chats.js";
import { copyButton, element, show } from "./render.js";
import { answer, countTokens, models } from "./server.js";

const at = (id) => document.getElementById(id);
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const RETRY_MS = 1000;

const chats = new Chats();
const settings = loadSettings();
let known = [];
let running = null; // The controller of the answer that is being generated.
let editing = null; // The index of the message that is being edited.

function report(problem) {
  at("problem").textContent = problem;
  at("problem").hidden = !problem;
}

function announce(text) {
  at("announcement").textContent = text;
}

function save() {
  if (!chats.save()) {
    report("This browser does not store the chats: its storage is full or turned off.");
  }
}

function showList() {
  at("list").replaceChildren(
    ...chats.all.map((chat) => {
      const title = titleOf(chat);
      const open = element("button", { type: "button", className: "quiet", textContent: title, title });
      open.setAttribute("aria-current", chat === chats.current);
      open.addEventListener("click", () => choose(chat));
      const remove = element("button", { type: "button", className: "quiet", textContent: "✕" });
      remove.setAttribute("aria-label", `Delete “${title}”`);
      remove.addEventListener("click", () => {
        if (confirm(`Delete “${title}”?`)) {
          chats.remove(chat);
          choose(chats.current);
        }
      });
      return element("li", {}, open, remove);
    }),
  );
  at("title").textContent = titleOf(chats.current);
  document.title = titleOf(chats.current);
}

// Updates the reasoning and the text of a message.
function update(shown, message) {
  const reasoning = shown.querySelector("details");
  reasoning.hidden = !message.reasoning;
  reasoning.querySelector("div").textContent = message.reasoning ?? "";
  show(shown.querySelector(".body"), message.content);
}

function article(message, index) {
  const isUser = message.role === "user";
  const body = element("div", { className: "body" });
  const summary = element("summary", { textContent: "Reasoning" });
  const reasoning = element("details", {}, summary, element("div", { className: "prose" }));
  const actions = element("div", { className: "actions" }, copyButton(() => message.content));
  const action = (text, run) => {
    const button = element("button", { type: "button", className: "quiet small", textContent: text });
    button.addEventListener("click", run);
    actions.append(button);
  };
  if (isUser) {
    action("Edit", () => edit(index));
  } else if (index === chats.current.messages.length - 1) {
    action("Regenerate", () => generate(index));
  }
  const heading = element("h2", { textContent: isUser ? "You" : "Model" });
  const made = element("article", { className: message.role }, heading, reasoning, body, actions);
  update(made, message);
  return made;
}

function showMessages() {
  const { messages } = chats.current;
  const empty = element("p", { className: "empty", textContent: "Send a message to start." });
  at("messages").replaceChildren(...(messages.length ? messages.map(article) : [empty]));
  at("messages").scrollTop = at("messages").scrollHeight;
}

function choose(chat) {
  running?.abort();
  chats.current = chat;
  save();
  setEditing(null);
  report("");
  showFigures();
  showList();
  showMessages();
  setMenu(false);
}

function setMenu(isOpen) {
  document.body.classList.toggle("menu", isOpen);
  at("menu").setAttribute("aria-expanded", isOpen);
}

function setEditing(index) {
  editing = index;
  at("editing").hidden = index === null;
  at("input").value = index === null ? "" : chats.current.messages[index].content;
  fit();
}

function edit(index) {
  running?.abort();
  setEditing(index);
  at("input").focus();
}

function fit() {
  at("input").style.height = "auto";
  at("input").style.height = `${at("input").scrollHeight + 2}px`;
}

// The speed of the answer, and how much of the longest sequence is used.
function showFigures(tokens = 0, seconds = 0, used = 0) {
  const most = known.find((model) => model.id === at("model").value)?.max_model_len;
  at("speed").textContent = tokens > 1 && seconds > 0 ? `${((tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
  at("context").textContent = used && most ? `${used} of ${most} tokens` : "";
}

function setRunning(controller) {
  running = controller;
  at("send").hidden = Boolean(controller);
  at("stop").hidden = !controller;
}

function requestFor(messages) {
  const body = { model: at("model").value, messages, stream: true, stream_options: { include_usage: true } };
  for (const name of NUMBERS) {
    if (settings[name] !== "" && settings[name] !== undefined && Number.isFinite(Number(settings[name]))) {
      body[name] = Number(settings[name]);
    }
  }
  return body;
}

// Generates the message at an index, and drops what was there and after it.
async function generate(index) {
  running?.abort();
  const chat = chats.current;
  chat.messages.length = index;
  const system = settings.system?.trim() ? [{ role: "system", content: settings.system }] : [];
  const messages = [...system, ...chat.messages.map(({ role, content }) => ({ role, content }))];
  const message = { role: "assistant", content: "" };
  chat.messages.push(message);
  const controller = new AbortController();
  setRunning(controller);
  report("");
  showMessages();
  showList();
  announce("Generating an answer");
  const shown = at("messages").lastElementChild;
  shown.classList.add("busy");
  const isShown = () => chats.current === chat && shown.isConnected;
  let tokens = 0;
  let prompt = 0;
  let first = 0;
  const figures = () => isShown() && showFigures(tokens, (performance.now() - first) / 1000, prompt + tokens);
  try {
    countTokens(settings.key, at("model").value, messages).then((count) => (prompt ||= count));
    for await (const chunk of answer(settings.key, requestFor(messages), controller.signal)) {
      const delta = chunk.choices[0]?.delta ?? {};
      if (delta.content || delta.reasoning_content) {
        first ||= performance.now();
        tokens += 1;
        message.content += delta.content ?? "";
        message.reasoning = (message.reasoning ?? "") + (delta.reasoning_content ?? "");
      }
      if (chunk.usage) {
        tokens = chunk.usage.completion_tokens;
        prompt = chunk.usage.prompt_tokens;
      }
      if (isShown()) {
        const log = at("messages");
        const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
        update(shown, message);
        log.scrollTop = follows ? log.scrollHeight : log.scrollTop;
      }
      figures();
    }
    announce(message.content);
  } catch (error) {
    if (error.name === "AbortError") {
      announce("Stopped");
    } else if (isShown()) {
      report(error.message);
    }
    if (!message.content && !message.reasoning) {
      chat.messages = chat.messages.filter((other) => other !== message);
    }
  }
  if (running === controller) {
    setRunning(null);
  }
  save();
  if (chats.current === chat) {
    showMessages();
    showList();
  }
}

function send() {
  const content = at("input").value.trim();
  if (!content || running || at("model").disabled) {
    return;
  }
  const { messages } = chats.current;
  if (editing !== null) {
    messages.length = editing;
  }
  messages.push({ role: "user", content });
  save();
  setEditing(null);
  generate(messages.length);
}

async function findModels() {
  try {
    known = (await models(settings.key)).filter((model) => (model.kind ?? "text") === "text");
  } catch (error) {
    report(error.message);
    return;
  }
  const options = known.map(({ id, state }) => {
    // A model that is not loaded is loaded by its first request.
    const text = state === "loading" ? `${id} (${state})` : id;
    return element("option", { value: id, textContent: text, disabled: state === "loading" });
  });
  at("model").replaceChildren(...options);
  const ready = known.filter((model) => model.state !== "loading");
  at("model").disabled = ready.length === 0;
  at("model").value = ready.find((model) => model.id === settings.model)?.id ?? ready[0]?.id ?? "";
  report("");
  if (ready.length < known.length) {
    setTimeout(findModels, RETRY_MS);
  }
}

function applyTheme() {
  if (settings.theme) {
    document.documentElement.dataset.theme = settings.theme;
  } else {
    delete document.documentElement.dataset.theme;
  }
}

function connectSettings() {
  const form = at("settings").querySelector("form");
  at("settings-open").addEventListener("click", () => {
    for (const field of form.querySelectorAll("[name]")) {
      field.value = settings[field.name] ?? "";
    }
    at("settings").showModal();
  });
  at("settings").addEventListener("close", () => {
    const hadKey = settings.key;
    Object.assign(settings, Object.fromEntries(new FormData(form)));
    saveSettings(settings);
    applyTheme();
    if (settings.key !== hadKey) {
      findModels();
    }
  });
}

at("new").addEventListener("click", () => {
  choose(chats.add());
  at("input").focus();
});
at("menu").addEventListener("click", () => setMenu(!document.body.classList.contains("menu")));
at("stop").addEventListener("click", () => running?.abort());
at("edit-cancel").addEventListener("click", () => setEditing(null));
at("model").addEventListener("change", () => {
  settings.model = at("model").value;
  saveSettings(settings);
});
at("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
at("input").addEventListener("input", fit);
at("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !at("settings").open) {
    running ? running.abort() : setEditing(null);
    setMenu(false);
  }
});

applyTheme();
connectSettings();
showList();
showMessages();
findModels();
