package service_test

import "testing"

// TestFormats runs each output format on meshes that cut it, against the reference.
func TestFormats(t *testing.T) {
	dir := writeSources(t)
	for _, job := range []struct{ output, topology string }{
		{"format: megatron-thd", "dp: 2"},
		{"format: megatron-thd", "dp: 1, cp: 2, pp: 2"},
		{"format: megatron-thd, cp_slicing: none", "dp: 2, cp: 2, tp: 2"},
		{"format: megatron-thd, document_multiple: 4", "dp: 2, cp: 2, tp: 2"},
		{"format: hf", "dp: 2, cp: 2, pp: 2"},
		{"format: torchtitan, cp_slicing: none", "dp: 2, cp: 2, pp: 2"},
		{"format: jax", "dp: 1, cp: 2, pp: 2"},
		{"format: jax, cp_slicing: contiguous", "dp: 2, cp: 4"},
	} {
		t.Run(job.output+"/"+job.topology, func(t *testing.T) {
			r := recipe{t.Name(), mixed + "\nbatch: {sequence_length: 512, sequences: 8, microbatch_size: 2}\ntopology: {" +
				job.topology + "}\noutput: {" + job.output + "}\n", 20, ""}
			want := solve(t, dir, r)
			res := setting{}.run(t, dir, r, nil)
			if res.Digest != want.digests[r.steps] {
				t.Errorf("digest step=%d %x, want %x", res.Next, res.Digest, want.digests[r.steps])
			}
		})
	}
}
