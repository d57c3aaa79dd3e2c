// What the router tells the page. The definitions are in io/src/admin and io/src/admin/page.

export type Given = { by: string; at: string };

export type Fleet = {
  version: string;
  page: string;
  router: string | null;
  explained: number;
  compared: string[];
  sample_seconds: number;
  causes: string[];
  pools: {
    name: string;
    policy: string;
    parts: string;
    models: string[];
    classes: { name: string; first_token_ms: number | null; wait_max_ms: number }[];
    replicas: { url: string; class: string; zone: string | null; weight: number }[];
  }[];
};

export type Note = { reason: string | null; detail: string | null; drained: Given | null };

export type PoolNow = {
  name: string;
  in_flight: number;
  quarantined: number;
  waiting: number;
  waiting_bytes: number;
  mu_per_min: number;
  classes: [number, number][];
  moved: number[];
  frozen: Given | null;
  replicas: { state: string[] } & Record<string, any[]>;
  notes: Record<string, Note>;
};

export type Now = {
  at_ms: number;
  ready: boolean;
  draining: boolean;
  connections: number;
  pools: PoolNow[];
};

export type Past = {
  at_s: number[];
  answered: number[];
  failed: number[];
  refused: number[];
  cancelled: number[];
  input: number[];
  cached: number[];
  output: number[];
  p50_ms: (number | null)[];
  p90_ms: (number | null)[];
  p99_ms: (number | null)[];
  in_flight: number[];
  waiting: number[];
  moved: number[][];
};

export type Incident = {
  id: number;
  at: string;
  kind: string;
  pool?: string;
  replica?: string;
  state: string;
  before?: string;
  reason?: string;
  by?: string;
  detail?: string;
  alert: boolean;
};

export type Replica = {
  url: string;
  class: string;
  zone: string | null;
  weight: number;
  pool: string;
  note: Note | null;
  state: string;
  in_flight: number;
  mu: number;
  mu_per_min: number;
  fill: number;
  pace: number;
  waiting: number | null;
  running: number | null;
  kv_share: number | null;
  kv_tokens_max: number | null;
  kv_tokens: number;
  report_age_s: number | null;
  sessions: number;
  sent: number;
  failed: number;
  cached: number | null;
  first_token_ms: number | null;
  first_token_hour_ms: number | null;
};

export type Operator = { name: string; may_order: boolean; needs_token: boolean };

/** A view: draws itself into its place, is told what is new, and may ask to be left. */
export type View = {
  draw(place: HTMLElement, rest: string): void;
  update?(kind: "link" | "fleet" | "now" | "past" | "event"): void;
  leave?(): void;
};
