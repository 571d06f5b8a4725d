package service_test

// grouped has records that are made of several, by a column and by number.
const grouped = "\n" + `  - name: grouped
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    transforms: [{group: lang}, {filter: "lang == 'en'"}, {text: "{lang}: {id} {text}"}, {tokenize: bytes}, {append_eod: {}}]
    keep: [lang]
    long: {rule: split, max: 300}
    shuffle: {block: 2}
  - name: fives
    files: talks/*.jsonl
    transforms: [{group: {rows: 5}}, {text: "{id?} {tools[].number?}"}, {tokenize: bytes}]
    bad_records: skip`
