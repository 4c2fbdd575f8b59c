// Snapshots as they come: by a stream of events; where there is none, by asking every few seconds. Nothing is asked for while nobody looks.

/** Where the gateway's paths begin, behind whatever prefix. */
export const ROOT = new URL("..", import.meta.url);
export const runLink = (campaign, run) => new URL(`runs/${encodeURIComponent(campaign)}/${encodeURIComponent(run)}`, ROOT).href;
export const callLink = (call) => new URL(`calls/${encodeURIComponent(call)}`, ROOT).href;

const ASK_MS = 4_000;

/** The names that the page's own path holds. */
export const named = (count) => location.pathname.split("/").slice(-count).map(decodeURIComponent);

export class NotSo extends Error {}

export async function ask(path) {
  const answer = await fetch(new URL(path, ROOT), { cache: "no-store" });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new NotSo(body.error?.message ?? `The gateway answered ${answer.status}.`), { status: answer.status });
  return body;
}

/** `query`: of /v1/events and /v1/overview. Calls `seen(snapshot)`, and `said(words, kind)` when the way it comes changes. */
export function follow(query, seen, said) {
  let stream, timer;
  const stop = () => {
    stream?.close();
    stream = undefined;
    clearTimeout(timer);
  };
  const open = () => {
    stop();
    stream = new EventSource(new URL(`v1/events${query}`, ROOT));
    stream.onmessage = (event) => {
      said("live", "good");
      seen(JSON.parse(event.data));
    };
    stream.onerror = () => {
      if (stream?.readyState !== EventSource.CLOSED) return said("reconnecting", "warn");
      stop();
      poll();
    };
  };
  const poll = async () => {
    try {
      seen(await ask(`v1/overview${query}`));
      said(`every ${ASK_MS / 1_000} s`, "warn");
    } catch (error) {
      said(error instanceof NotSo ? error.message : "the gateway does not answer", "bad");
    }
    if (!document.hidden) timer = setTimeout(open, ASK_MS);
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? (stop(), said("paused", "soft")) : open()));
  addEventListener("pagehide", stop);
  open();
}

/** How the data comes, in the page's head. */
export function link(text, kind) {
  const place = document.getElementById("link");
  if (place.textContent !== text) place.textContent = text;
  place.className = `pill ${kind}`;
}
