"""What SBUF and PSUM a trace needs, where its tiles lie, what must spill: legality refuses and timing waits by it."""
