package org.gantrymq.interop.client;

/** An action that may be refused. */
interface Attempt {
    Object go() throws Exception;
}
