// Deletes the oldest terminated pods above a threshold, as the threshold of Kubernetes' pod
// garbage collector does.

import { indexCount, byIndex } from 'davit:controller/cache@0.1.0';

const TERMINATED = ['Succeeded', 'Failed'];
const PODS = 'pods';
const BY_PHASE = 'phase';
// How many pods one answer of the cache holds at most. The copy of a page is in the guest's memory.
const PAGE = 500;
// The host refuses an answer with more plans in one decision. The next tick has the rest.
const MAX_PLANS = 10_000;

const schema = {
  type: 'object',
  additionalProperties: false,
  properties: { terminatedPodThreshold: { type: 'integer', minimum: 0, default: 12500 } },
};

// Set by `describe`, which the host calls first in every instance.
let threshold;

export const payloads = {
  encoding: () => 'json',
};

export const decide = {
  describe(config) {
    const { terminatedPodThreshold = 12500, ...others } = JSON.parse(text(config));
    // The host does not apply the schema: a misspelled setting would count as none.
    for (const field of Object.keys(others)) throw { field, message: 'there is no such setting' };
    threshold = terminatedPodThreshold;
    if (!Number.isSafeInteger(threshold) || threshold < 0) {
      // A `result` with an error is thrown.
      throw { field: 'terminatedPodThreshold', message: 'it must be a whole number, 0 or more' };
    }
    return manifest();
  },

  reconcile(_now, items) {
    return items.map(decideItem);
  },
};

// UTF-8. Not every engine has a TextDecoder.
function text(bytes) {
  if (typeof TextDecoder === 'function') return new TextDecoder().decode(bytes);
  let latin = '';
  for (const byte of bytes) latin += String.fromCharCode(byte);
  return decodeURIComponent(escape(latin));
}

function decideItem() {
  // Counting copies no object, so it comes first.
  const count = TERMINATED.reduce((sum, phase) => sum + indexCount(PODS, BY_PHASE, phase), 0);
  const excess = threshold === 0 ? 0 : Math.max(0, count - threshold);
  const ends = Math.min(excess, MAX_PLANS);
  const message = `${count} terminated pods, the threshold is ${threshold}`;
  const plans = ends === 0 ? [] : oldest(ends).map((pod) => deletion(pod, message));
  return { plans, commands: [], verdict: { tag: 'done' }, parallel: 0 };
}

function oldest(count) {
  const pods = TERMINATED.flatMap(podsInPhase);
  pods.sort((one, other) => compare(age(one), age(other)));
  return pods.slice(0, count);
}

function podsInPhase(phase) {
  const pods = [];
  let cursor = 0n;
  do {
    const page = byIndex(PODS, BY_PHASE, phase, cursor, PAGE);
    pods.push(...page.objects.map((object) => JSON.parse(text(object.data))));
    cursor = page.next;
  } while (cursor !== undefined);
  return pods;
}

// Evicted pods first, then by age. Names and uid break ties, so that the same cluster always
// leads to the same plans.
function age({ metadata, status }) {
  const evicted = status.phase === 'Failed' && status.reason === 'Evicted';
  const created = metadata.creationTimestamp ?? '';
  return [evicted ? 0 : 1, created, metadata.name, metadata.namespace, metadata.uid];
}

function compare(one, other) {
  const at = one.findIndex((part, index) => part !== other[index]);
  if (at < 0) return 0;
  return one[at] < other[at] ? -1 : 1;
}

function deletion({ metadata: { namespace, name, uid } }, message) {
  return {
    target: { apiVersion: 'v1', kind: 'Pod', namespace, name, uid },
    reason: 'terminated',
    message,
    steps: [{
      tag: 'delete',
      val: { resourceVersion: '', propagationPolicy: '', gracePeriodSeconds: 0n },
    }],
    measures: [],
    whenCancelled: undefined,
  };
}

function manifest() {
  return {
    name: 'podgc-javascript',
    version: '0.1.0',
    summary: 'Deletes the oldest terminated pods above a threshold.',
    watches: [{
      name: PODS,
      source: { tag: 'one', val: { group: '', version: 'v1', plural: 'pods' } },
      namespace: '',
      labelSelector: '',
      fieldSelector: '',
      fields: ['metadata.creationTimestamp', 'status.phase', 'status.reason'],
      indexes: [{
        name: BY_PHASE,
        path: 'status.phase',
        presence: false,
        unset: false,
        filter: { tag: 'only', val: TERMINATED },
        order: undefined,
      }],
      optional: false,
    }],
    triggers: [],
    queues: [{
      name: 'passes',
      workers: 1,
      batch: 1,
      priority: 0,
      retryInitial: 20_000n,
      retryMax: 20_000n,
      rate: undefined,
    }],
    ticks: [{ queue: 'passes', key: 'cluster', period: 20_000n }],
    permissions: [{ verb: 'delete', group: '', resource: 'pods' }],
    metrics: [],
    configSchema: JSON.stringify(schema),
  };
}
