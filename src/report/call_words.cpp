// SPDX-License-Identifier: Apache-2.0
#include "call_words.h"

namespace posenc::report {

void add_params(Words& w, std::string& file) {
  w.text("--params", file, "F",
         ".safetensors file with the learned parameters of the schemes, by name (posenc list "
         "NAME);\ndefault of a MODEL: its weights")
      .file();
}

void add_inputs(Words& w, std::vector<std::string>& to) {
  w.texts("--input", to, "NAME=F", "an array that the scheme reads in each call; repeatable")
      .file();
}

void add_token_types(Words& w, AttendOptions& o) {
  w.text("--token-types", o.token_types, "F",
         "type of each key as the model's processor makes them (token_type_ids), [keys] or [batch, "
         "keys]:\nfor a MODEL whose images or prefix see each other")
      .file();
}

void add_tensors(Words& w, AttendOptions& o) {
  w.text("--q", o.q, "F", "queries: F.npy, F.safetensors or F.safetensors:NAME").required().file();
  w.text("--k", o.k, "F", "keys, likewise; as many heads as q, or a number that divides them")
      .required()
      .file();
  w.text("--v", o.v, "F", "values, with as many heads as k").required().file();
  w.text("--order", o.order, "ORDER", "axes: thd (rank 3), bthd or bhtd (rank 4, must be given)");
  add_params(w, o.params);
  add_inputs(w, o.inputs);
  w.texts("--with", o.with, "SCHEME",
          "another SCHEME whose terms are added to the score; repeatable");
}

void add_packing(Words& w, AttendOptions& o) {
  w.text("--cu-seqlens", o.cu_seqlens, "F",
         "packed sequences: their starts and the end, [sequences + 1]; order, positions and offset "
         "restart in each")
      .file();
  w.text("--key-cu-seqlens", o.key_cu_seqlens, "F",
         "the same for the keys (default: that of the queries)")
      .file();
  w.text("--documents", o.documents, "F",
         "document number of each token; tokens see only their own document")
      .file();
  w.text("--query-order", o.query_order, "F",
         "index of each query in its sequence, [t] or [b, t]: for shards and caches that evict "
         "(default: by --offset)")
      .file();
  w.text("--key-order", o.key_order, "F", "the same for the keys; with --query-order").file();
  w.text("--chunk-origin", o.chunk_origin, "N|F",
         "where the chunks of --mask chunk=N start: a number, or a file [b] or [b, groups]")
      .file();
  w.text("--block-table", o.block_table, "F",
         "pages of each sequence, [b, pages]; k and v contain the pages; with --key-length")
      .file();
  w.text("--key-length", o.key_length, "F",
         "number of keys of each sequence, [b]; keys after them are padding")
      .file();
}

void add_places(Words& w, AttendOptions& o, const char* positions) {
  w.text("--positions", o.positions, "P", positions).file();
  w.text("--key-positions", o.key_positions, "P",
         "positions of the keys (default: those of the queries if there are as many, else their "
         "order)")
      .file();
  w.texts("--mask", o.masks, "MASK",
          "causal, window=L,R, prefix=N, chunk=N, sinks=N or a file (F.npy, F.safetensors) of "
          "bytes (0 hides)\nor of numbers that are added; repeatable, a key must be visible in all "
          "(default: the mask of a MODEL's\nlayer, none for a SCHEME)")
      .file();
  add_token_types(w, o);
  w.text("--offset", o.offset, "N",
         "index of the first query among the keys: end (default: the queries are the last "
         "tokens), start or a number");
  w.real(
      "--scale", o.scale, "S",
      "factor on q.k; with 0 only the position terms remain (default: a model's or scheme's own, "
      "else head_dim^-1/2)");
}

}  // namespace posenc::report
