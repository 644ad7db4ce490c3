package org.gantrymq.interop.client;

/** Something that may be refused. */
interface Attempt {
    Object go() throws Exception;
}
