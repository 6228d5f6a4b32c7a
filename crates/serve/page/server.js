// Requests to the server that this page came from.

function headers(key) {
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function failure(response) {
  const document = await response.json().catch(() => null);
  return new Error(document?.error?.message ?? `the server answered with status ${response.status}`);
}

async function call(path, key, body) {
  const request = body ? { method: "POST", body: JSON.stringify(body) } : {};
  const response = await fetch(path, { ...request, headers: headers(key) });
  if (!response.ok) {
    throw await failure(response);
  }
  return response.json();
}

export async function models(key) {
  return (await call("/v1/models", key)).data;
}

// The number of tokens that messages take, or 0 if the server does not say.
export async function countTokens(key, model, messages) {
  try {
    return (await call("/tokenize", key, { model, messages })).count;
  } catch {
    return 0;
  }
}

// Yields the documents of a streamed answer.
export async function* answer(key, body, signal) {
  const request = { method: "POST", body: JSON.stringify(body), headers: headers(key), signal };
  const response = await fetch("/v1/chat/completions", request);
  if (!response.ok) {
    throw await failure(response);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      throw new Error("the server closed the connection before the end of the answer");
    }
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "data: [DONE]") {
        return;
      }
      if (line.startsWith("data: ")) {
        const document = JSON.parse(line.slice(6));
        if (document.error) {
          throw new Error(document.error.message);
        }
        yield document;
      }
    }
  }
}
