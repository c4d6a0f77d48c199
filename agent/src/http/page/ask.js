// Asking the agents: every two seconds while something happens, and never in a hidden tab.

const LIVE_MS = 2_000;
const REST_MS = 10_000;
/** Added for each agent: five hundred of them are asked every twelve seconds. */
const AGENT_MS = 20;
const PATIENCE_MS = 5_000;

/** An address that was not found there: no failure, the agent does not know of it. */
export class NotFound extends Error {}

/** What an address answers. */
export async function get(path) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch (error) {
    throw new Error(error.name === "TimeoutError" ? `no answer within ${PATIENCE_MS / 1000} s` : "the connection failed");
  }
  if (response.status === 404) throw new NotFound(path);
  if (!response.ok) throw new Error(`${response.status}: ${(await response.text()).trim().slice(0, 300)}`);
  return response.json();
}

/**
 * What each agent answers to the same question. An agent speaks for itself; `rollrace ui` speaks for
 * many, and says which of them did not answer.
 */
export async function all(path) {
  const body = await get(path);
  if (!body.agents) return [{ node: body.node, answer: body }];
  return body.agents;
}

/** Does `once` again and again; it returns how many agents answered, and `isLive` whether something happens. */
export class Poll {
  #once;
  #isLive;
  #timer = null;
  #running = false;
  #again = false;

  constructor(once, isLive) {
    [this.#once, this.#isLive] = [once, isLive];
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#stop() : this.now()));
  }

  /** Asks at once, and goes on from there. */
  async now() {
    this.#stop();
    if (this.#running) {
      this.#again = true;
      return;
    }
    this.#running = true;
    let agents;
    do {
      this.#again = false;
      agents = await this.#once();
    } while (this.#again);
    this.#running = false;
    const pause = (this.#isLive() ? LIVE_MS : REST_MS) + AGENT_MS * Math.max(0, agents - 1);
    if (!document.hidden) this.#timer = setTimeout(() => this.now(), pause);
  }

  #stop() {
    clearTimeout(this.#timer);
    this.#timer = null;
  }
}
