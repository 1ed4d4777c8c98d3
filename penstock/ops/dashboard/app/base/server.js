// @ts-check
/** Requests to the driver's REST server. */

const TOKEN = "penstock.token";

/** An answer that is an error. `status` 0: nobody answered. */
export class ServerError extends Error {
  /**
   * @param {number} status
   * @param {string[]} texts
   */
  constructor(status, texts) {
    super(texts[0] ?? `The driver answered with status ${status}.`);
    this.status = status;
    this.texts = texts;
  }
}

/** Why something has failed, for people. The server says first which kind of error it is, and then what has happened. */
export function reasonOf(/** @type {unknown} */ error) {
  if (!(error instanceof ServerError)) return String(error);
  const telling = error.texts.filter((one) => one !== "Internal server error.");
  return telling[0] ?? error.message;
}

/** The driver's token, as long as this tab is open. A server that other machines reach asks for it. */
export function rememberToken(/** @type {string} */ token) {
  sessionStorage.setItem(TOKEN, token.trim());
}

/** @returns {Record<string, string>} */
export function credentials() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/**
 * What a path answers. Throws ServerError.
 * @param {string} path
 * @param {{ method?: string, body?: unknown, signal?: AbortSignal }} [how]
 * @returns {Promise<any>}
 */
export async function ask(path, how = {}) {
  const answer = await fetched(path, how);
  const text = await answer.text();
  return text ? JSON.parse(text) : {};
}

/**
 * A part of a file, for example of a log. `bytes`: as they are, because a part may begin within a letter. `name`: of the file.
 * @typedef {{ text: string, bytes: Uint8Array, begin: number, end: number, total: number, name: string }} Part
 */

/**
 * The text of a file, or of a part of it. `from`: the first byte that is wanted; negative: so many of the last ones. `until`: the
 * first byte that is not wanted.
 * @param {string} path
 * @param {{ from?: number, until?: number, signal?: AbortSignal }} [how]
 * @returns {Promise<Part>}
 */
export async function askFile(path, { from = 0, until, signal } = {}) {
  const range = from < 0 ? `bytes=${from}` : `bytes=${from}-${until === undefined ? "" : until - 1}`;
  const answer = await fetched(path, { signal, headers: { Range: range } });
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const span = /bytes (\d+)-(\d+)\/(\d+)/.exec(answer.headers.get("Content-Range") ?? "");
  const begin = span ? Number(span[1]) : 0;
  const total = span ? Number(span[3]) : bytes.byteLength;
  const named = /filename\*=UTF-8''([^;]+)/.exec(answer.headers.get("Content-Disposition") ?? "");
  const name = named ? decodeURIComponent(named[1]) : "";
  return { text: new TextDecoder().decode(bytes), bytes, begin, end: begin + bytes.byteLength, total, name };
}

/**
 * Start an operation and wait for its end. Throws ServerError, also where the operation fails.
 * @param {string} path
 * @param {unknown} body
 * @param {(id: string) => string} statusPath where to ask how far it is
 */
export async function operate(path, body, statusPath) {
  const { "request-id": id } = await ask(path, { method: "POST", body });
  for (;;) {
    const told = await ask(statusPath(id));
    if (told.status?.id === "COMPLETED") {
      const failure = told.operation?.["failure-cause"];
      if (failure) throw new ServerError(500, [String(failure["stack-trace"] ?? failure.class)]);
      return told.operation;
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/**
 * @param {string} path
 * @param {{ method?: string, body?: unknown, signal?: AbortSignal, headers?: Record<string, string> }} how
 */
export async function fetched(path, { method = "GET", body, signal, headers = {} }) {
  const sent = { ...credentials(), ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ServerError(0, ["The driver does not answer. It may have ended."]);
  }
  if (!answer.ok) throw new ServerError(answer.status, await errorsOf(answer));
  return answer;
}

/** @param {Response} answer */
async function errorsOf(answer) {
  try {
    return (await answer.json()).errors ?? [];
  } catch {
    return [`${answer.status} ${answer.statusText}`];
  }
}
