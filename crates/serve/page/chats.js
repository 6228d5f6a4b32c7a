// Chats and settings, kept in this browser.

const CHATS = "amdgpu-ep.chats";
const SETTINGS = "amdgpu-ep.settings";
const KEY = "amdgpu-ep.key";
const LONGEST_TITLE = 60;

function read(storage, name, fallback) {
  try {
    return JSON.parse(storage.getItem(name)) ?? fallback;
  } catch {
    return fallback;
  }
}

function write(storage, name, value) {
  try {
    storage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false; // The storage is full or turned off.
  }
}

// What an older version or another program stored may have any form.
function isMessage(message) {
  const hasReasoning = typeof (message?.reasoning ?? "") === "string";
  return (message?.role === "user" || message?.role === "assistant") && typeof message.content === "string" && hasReasoning;
}

function isChat(chat) {
  return typeof chat?.id === "string" && Array.isArray(chat.messages) && chat.messages.every(isMessage);
}

export class Chats {
  constructor() {
    const stored = read(localStorage, CHATS, {});
    this.all = Array.isArray(stored.all) ? stored.all.filter(isChat) : [];
    this.current = this.all.find((chat) => chat.id === stored.current) ?? this.all[0] ?? this.add();
  }

  // Starts a chat, unless the current one is still empty.
  add() {
    const empty = this.all.find((chat) => chat.messages.length === 0);
    if (!empty) {
      this.all.unshift({ id: crypto.randomUUID?.() ?? String(Date.now() + Math.random()), messages: [] });
    }
    this.current = empty ?? this.all[0];
    return this.current;
  }

  remove(chat) {
    this.all = this.all.filter((other) => other !== chat);
    if (this.current === chat) {
      this.current = this.all[0] ?? this.add();
    }
  }

  save() {
    return write(localStorage, CHATS, { all: this.all, current: this.current.id });
  }
}

export function titleOf(chat) {
  const first = chat.messages[0]?.content.trim().split("\n")[0] ?? "";
  return first.length > LONGEST_TITLE ? first.slice(0, LONGEST_TITLE) + "…" : first || "New chat";
}

export function loadSettings() {
  const stored = read(localStorage, SETTINGS, {});
  return { ...(typeof stored === "object" ? stored : {}), key: read(sessionStorage, KEY, "") };
}

export function saveSettings({ key, ...settings }) {
  write(localStorage, SETTINGS, settings);
  write(sessionStorage, KEY, key);
}
