/** Requests to the server: the key, errors as one kind of exception, and cancelling. */

let key = "";

/** Fired with `needed` when the server wants a key that it has not got. */
export const keys = new EventTarget();

/** Set the key of all further requests; it is kept in memory only. */
export function useKey(given) {
  key = given;
}

/** A request that failed; `status` is 0 when the server did not answer. */
export class ApiError extends Error {
  constructor(status, detail, retryAfter = 0) {
    super(detail);
    Object.assign(this, { status, retryAfter });
  }
}

/** Return whether an error only says that a request was cancelled. */
export const isAborted = (error) => error?.name === "AbortError";

const HINTS = {
  401: "The API key is missing or wrong.",
  403: "The server does not allow this.",
  429: "The server is busy.",
};

/**
 * Send a request and return the answer.
 * @param {string} path Path and query.
 * @param {{body?: object, signal?: AbortSignal}} [options] A body makes it a POST.
 */
export async function request(path, { body, signal } = {}) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const options = { headers, signal, cache: "no-store", credentials: "omit" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new ApiError(0, "The server does not answer. It may be stopped or restarting.");
  }
  const content = await response.json().catch((error) => {
    if (isAborted(error)) throw error;
    return {};
  });
  signal?.throwIfAborted(); // a later request has taken its place
  if (response.ok) return content;
  if (response.status === 401) keys.dispatchEvent(new CustomEvent("needed", { detail: { tried: Boolean(key) } }));
  const detail = sentence(content.detail || HINTS[response.status] || `The server answered with status ${response.status}.`);
  throw new ApiError(response.status, detail, Number(response.headers.get("Retry-After")) || 0);
}

/** Send a request again while the server is busy, up to a few times. */
export async function patientRequest(path, options = {}) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await request(path, options);
    } catch (error) {
      if (error.status !== 429 || attempt === 5) throw error;
      await pause(1000 * (error.retryAfter || 1) * (1 + attempt / 2), options.signal);
    }
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("cancelled", "AbortError"));
    });
  });
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".");
}
