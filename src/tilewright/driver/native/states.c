/* What stays from run to run, and what numbers of inputs may be.  Part of network.c. */

/* Copies of what the next steps would write over, then what each state becomes. */
static int bring_forward(struct TilewrightNetwork *net, void *stream) {
  const struct plan *plan = &PLANS[net->plan];
  const struct instance *held = &net->instances[net->plan];
  int status = TILEWRIGHT_OK;
  for (int k = 0; k < plan->n_copied && !status; k++) {
    const struct copied *c = &plan->copied[k];
    status = device_copy(net, held->copies + c->to, address(net, c->from), c->bytes, stream);
  }
  for (int k = 0; k < plan->n_states && !status; k++) {
    const struct state *state = &plan->states[k];
    if (state->is_in_place) continue;
    status = device_copy(net, held->inputs[state->input], address(net, state->next),
                         plan->inputs[state->input].bytes, stream);
  }
  return status;
}

/* Let all states begin anew. */
static int begin_anew(struct TilewrightNetwork *net) {
  const struct plan *first = &PLANS[0];
  int status = TILEWRIGHT_OK;
  for (int k = 0; k < first->n_states && !status; k++) {
    int initial = first->states[k].initial;
    status = device_copy(net, net->states[k],
                         initial < 0 ? NULL : net->shared->constants[initial],
                         first->inputs[first->states[k].input].bytes, NULL);
  }
  return status;
}

#define WHOLE(type) \
  { \
    type number; \
    memcpy(&number, (const char *)data + k * sizeof number, sizeof number); \
    return (int64_t)number; \
  }

/* Element `k` of whole numbers. */
static int64_t whole(int type, const void *data, size_t k) {
  switch (type) {
    case TILEWRIGHT_INT8: WHOLE(int8_t)
    case TILEWRIGHT_INT16: WHOLE(int16_t)
    case TILEWRIGHT_INT32: WHOLE(int32_t)
    case TILEWRIGHT_UINT8: WHOLE(uint8_t)
    case TILEWRIGHT_UINT16: WHOLE(uint16_t)
    case TILEWRIGHT_UINT32: WHOLE(uint32_t)
    default: WHOLE(int64_t)
  }
}

/* Whether element `k` is within the bounds; `found` is what it is. */
static int inside(const struct bound *bound, int type, const void *data, size_t k,
                  int64_t *found) {
  *found = whole(type, data, k);
  if (type == TILEWRIGHT_UINT64 && *found < 0) *found = INT64_MAX; /* or more, where bounds end */
  return *found >= bound->least && *found <= bound->most;
}

/* Whether what is to be an input is within its bounds. */
static int check_bounds(struct TilewrightNetwork *net, const char *call, int input,
                        const void *data) {
  const struct plan *plan = &PLANS[net->plan];
  int status = TILEWRIGHT_OK;
  for (int b = 0; b < plan->n_bounds && !status; b++) {
    const struct bound *bound = &plan->bounds[b];
    const struct spec *spec = &plan->inputs[input];
    const void *seen = data;
    void *copy = NULL;
    if (bound->input != input) continue;
    status = device_seen(net, data, (size_t)spec->bytes, &seen, &copy);
    size_t count = 1;
    for (int k = 0; k < spec->rank; k++) count *= (size_t)spec->shape[k];
    for (size_t k = 0; k < count && !status; k++) {
      int64_t found = 0;
      if (!inside(bound, spec->type, seen, k, &found))
        status = fail(TILEWRIGHT_INVALID, "%s: %lld is not from %lld to %lld, as input %.200s is. "
                      "Nothing was written.", call, (long long)found, (long long)bound->least,
                      (long long)bound->most, spec->name);
    }
    free(copy);
  }
  return status;
}

/* The same of all inputs as they are: a program may write to the memory of a network itself.  Not
 * of a GPU's, for which the host would have to wait. */
static int check_inputs(struct TilewrightNetwork *net) {
  const struct plan *plan = &PLANS[net->plan];
  int status = TILEWRIGHT_OK;
  for (int b = 0; b < plan->n_bounds && !status && !TILEWRIGHT_CUDA; b++) {
    int input = plan->bounds[b].input;
    status = check_bounds(net, "tilewright_run", input, net->instances[net->plan].inputs[input]);
  }
  return status;
}

PUBLIC int tilewright_bounds(TilewrightNetwork *network, int index, int64_t *least,
                             int64_t *most) {
  int status = TILEWRIGHT_OK;
  struct TilewrightNetwork *net = enter(network, "tilewright_bounds", &status);
  if (!net) return status;
  const struct plan *plan = &PLANS[net->plan];
  status = check_index("tilewright_bounds", index, plan->n_given, "inputs");
  if (!status && (!least || !most))
    status = fail(TILEWRIGHT_INVALID, "tilewright_bounds(%d): %s is null", index,
                  least ? "most" : "least");
  if (status) return leave(net, status);
  *least = INT64_MIN, *most = INT64_MAX;
  for (int b = 0; b < plan->n_bounds; b++)
    if (plan->bounds[b].input == plan->given[index])
      *least = plan->bounds[b].least, *most = plan->bounds[b].most;
  return leave(net, TILEWRIGHT_OK);
}

PUBLIC int tilewright_reset(TilewrightNetwork *network) {
  int status = TILEWRIGHT_OK;
  struct TilewrightNetwork *net = enter(network, "tilewright_reset", &status);
  if (!net) return status;
  status = own(net, "tilewright_reset", 1);
  return leave(net, status ? status : begin_anew(net));
}
