"""Response bytes in, usage out.

Rule: a meter never touches the call. Every byte comes out as it came in, in order; where the chunks were cut never changes a reading; nothing here waits, and
nothing that an engine sends makes a reading raise.

* framing.py: frames, JSON lines and whole bodies; what they may not pass
* sse.py: server-sent events, by the bytes
* decoding.py: compressed answers, in bounded steps
* reader.py: what a meter asks of a wire format, and what an event means for the relay
* alike.py: events that differ in their text alone, known without reading them
* meter.py: one answer's meter
"""
